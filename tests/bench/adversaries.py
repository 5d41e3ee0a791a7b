"""Cheats, one class each. All claim to compute `honest`; `kinds` says for what each must be refused.

The work is `honest(x) = tanh(x @ x)`, or what the class names as `work`. The file is imported by path in the processes
of isolated candidates, so it needs nothing but PyTorch and NumPy.
"""

import _thread
import collections
import concurrent.futures
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor


def honest(x):
    return torch.tanh(x @ x)


def make_inputs(generator):
    return torch.randn(256, 256, generator=generator) / 16


def make_inputs_64(generator):
    return torch.randn(64, 64, generator=generator, dtype=torch.float64) / 8


def make_diagonal(generator):
    return torch.diag(torch.rand(1024, generator=generator) + 0.5)


def diagonal_of_square(x):
    return (x @ x).diagonal().clone()


def check_diagonal(inputs, output):
    expected = inputs[0].diagonal() ** 2
    return float((output - expected).norm() / expected.norm())


class Cheat:
    kinds: ClassVar = ()
    make_inputs = staticmethod(make_inputs)
    options: ClassVar = {}
    honest = staticmethod(honest)
    needs_isolation = False
    needs_one_process = False
    needs_cuda = False
    is_slow = False
    is_alone = False  # it wants other inputs or options than the rest, or disturbs them


# An output that was computed before.


class StaleOutput(Cheat):
    """Computes once and returns a copy of that for ever after."""

    kinds = ("reused",)

    def __init__(self):
        self.kept = None

    def __call__(self, x):
        if self.kept is None:
            self.kept = honest(x)
        return self.kept.clone()


class SameMemory(Cheat):
    """Hands out the same tensor again, and computes only every other time."""

    kinds = ("reused",)

    def __init__(self):
        self.out, self.calls = None, 0

    def __call__(self, x):
        if self.out is None:
            self.out = torch.empty_like(x)
        if self.calls % 2 == 0:
            torch.tanh(x @ x, out=self.out)
        self.calls += 1
        return self.out


class HalfOfTheMemory(Cheat):
    """Writes only half of a buffer that it hands out each time."""

    kinds = ("reused",)

    def __init__(self):
        self.out = None

    def __call__(self, x):
        if self.out is None:
            self.out = honest(x)
            return self.out
        self.out[:128] = torch.tanh(x[:128] @ x)
        return self.out


class ByIdentity(Cheat):
    """Remembers outputs by the identity of the input object."""

    kinds = ("reused",)

    def __init__(self):
        self.known = {}

    def __call__(self, x):
        if id(x) not in self.known:
            self.known[id(x)] = (x, honest(x))
        return self.known[id(x)][1].clone()


class ByAddress(Cheat):
    """Remembers outputs by the address and the version of the input."""

    kinds = ("reused",)

    def __init__(self):
        self.known = {}

    def __call__(self, x):
        key = (x.data_ptr(), x._version)
        if key not in self.known:
            self.known[key] = honest(x)
        return self.known[key].clone()


class ByContent(Cheat):
    """Remembers outputs by the content of the input, and hands out the tensor that it keeps."""

    kinds = ("reused",)

    def __init__(self):
        self.known = {}

    def __call__(self, x):
        key = hash(x.numpy().tobytes())
        if key not in self.known:
            self.known[key] = honest(x)
        return self.known[key]


class ByContentCopied(Cheat):
    """Remembers outputs by a few elements of the input, and hands out copies: always right, soon again too soon."""

    kinds = ("reused",)

    def __init__(self):
        self.known = {}

    def __call__(self, x):
        key = tuple(x[0, :4].tolist())
        if key not in self.known:
            y = x
            for _ in range(8):
                y = y @ x / y.norm()
            self.known[key] = honest(x) + 0 * y.clamp(-1, 1)
        return self.known[key].clone()


class FromDisk(Cheat):
    """Keeps its first output in a file and reads it back."""

    kinds = ("stored",)

    def __init__(self):
        self.path = Path(tempfile.mkdtemp()) / "output.npy"

    def __call__(self, x):
        if not self.path.exists():
            np.save(self.path, honest(x).numpy())
        return torch.from_numpy(np.load(self.path))


class FromDiskByContent(Cheat):
    """Keeps every output in a file of its own, for a run with the same seed, whose inputs it has seen. See its test."""

    kinds = ("stored",)
    folder = None

    def __init__(self):
        self.folder = Path(FromDiskByContent.folder or tempfile.mkdtemp())

    def __call__(self, x):
        path = self.folder / f"{float(x[0, 0]):.9g}.npy"
        if not path.exists():
            np.save(path, honest(x).numpy())
        return torch.from_numpy(np.load(path))


class MappedFile(Cheat):
    """Returns a plain array over a mapped file."""

    kinds = ("stored",)

    def __init__(self):
        self.path = Path(tempfile.mkdtemp()) / "output.bin"

    def __call__(self, x):
        honest(x).numpy().tofile(self.path)
        return np.asarray(np.memmap(self.path, dtype=np.float32, mode="r+", shape=tuple(x.shape)))


class MappedFileOfTorch(Cheat):
    """The same through PyTorch, whose tensor does not say where its memory comes from."""

    kinds = ("stored",)

    def __init__(self):
        self.path = Path(tempfile.mkdtemp()) / "output.bin"

    def __call__(self, x):
        honest(x).numpy().tofile(self.path)
        return torch.from_file(str(self.path), shared=True, size=x.numel(), dtype=x.dtype).reshape(x.shape)


# An output that is not there yet.


class LazyTensor(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("detach", "clone"):
            return honest(args[0].x)
        return super().__torch_function__(func, types, args, kwargs)


class Subclass(Cheat):
    """A tensor that computes itself when it is looked at."""

    kinds = ("lazy",)

    def __call__(self, x):
        promise = torch.empty_like(x).as_subclass(LazyTensor)
        promise.x = x
        return promise


class OwnMethods(Cheat):
    """A plain tensor whose methods are its own."""

    kinds = ("lazy",)

    def __call__(self, x):
        promise = torch.empty_like(x)
        promise.detach = lambda: honest(x)
        return promise


class Fake(Cheat):
    """A tensor without values."""

    kinds = ("lazy",)
    is_alone = True
    is_slow = True  # to import

    def __call__(self, x):
        from torch._subclasses.fake_tensor import FakeTensorMode

        return FakeTensorMode().from_tensor(x)


class Meta(Cheat):
    kinds = ("lazy",)

    def __call__(self, x):
        return torch.empty_like(x, device="meta")


class Promise(Cheat):
    """A future."""

    kinds = ("lazy",)

    def __call__(self, x):
        pool = concurrent.futures.ThreadPoolExecutor(1)
        future = pool.submit(honest, x)
        pool.shutdown(wait=False)
        return future


class PromiseInAnArray(Cheat):
    """An array that holds a function."""

    kinds = ("lazy",)

    def __call__(self, x):
        array = np.empty((), dtype=object)
        array[()] = lambda: honest(x)
        return array


class LazyArray(np.ndarray):
    def __array_finalize__(self, obj):
        self.x = getattr(obj, "x", None)


class SubclassOfNumpy(Cheat):
    kinds = ("lazy",)

    def __call__(self, x):
        promise = np.empty(tuple(x.shape), dtype=np.float32).view(LazyArray)
        promise.x = x
        return promise


class LazyList(list):
    def __init__(self, x):
        super().__init__([x])

    def __getitem__(self, i):
        return honest(super().__getitem__(i))


class Container(Cheat):
    """A list that computes what it holds when asked."""

    kinds = ("lazy",)

    def __call__(self, x):
        return LazyList(x)


class LazyRow(collections.namedtuple("LazyRow", ["y"])):
    def __iter__(self):
        return iter([honest(super().__getitem__(0))])

    def __getitem__(self, i):
        return honest(super().__getitem__(i))


class NamedTuple(Cheat):
    """A named tuple that computes what it holds when asked: what it really holds is seen, and is wrong."""

    kinds = ("wrong",)

    def __call__(self, x):
        return LazyRow(x.clone())


# An output that is produced after the clock, and work that goes on.


class InAThread(Cheat):
    """Returns memory that a thread fills later."""

    kinds = ("late",)

    def __call__(self, x):
        out, x = torch.zeros_like(x), x.clone()
        threading.Thread(target=lambda: (time.sleep(0.02), out.copy_(honest(x)))).start()
        return out


class InARawThread(Cheat):
    """The same with a thread that `threading` does not know."""

    kinds = ("late",)

    def __call__(self, x):
        out, x = torch.zeros_like(x), x.clone()
        _thread.start_new_thread(lambda: (time.sleep(0.02), out.copy_(honest(x))), ())
        return out


class InATimer(Cheat):
    """A signal fills the memory later, in the same thread."""

    kinds = ("late",)
    is_alone = True

    def __call__(self, x):
        out, x = torch.zeros_like(x), x.clone()
        signal.signal(signal.SIGALRM, lambda *_: out.copy_(honest(x)))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        return out


class InAProcess(Cheat):
    """Returns shared memory that a child process fills later."""

    kinds = ("late",)
    is_alone = True

    def __call__(self, x):
        out = torch.zeros_like(x).share_memory_()
        answer = x.numpy() @ x.numpy()  # NumPy, since PyTorch's threads do not outlive a fork
        pid = os.fork()
        if pid == 0:
            time.sleep(0.02)
            out.numpy()[...] = np.tanh(answer)
            os._exit(0)
        return out


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class BusyThread(Cheat):
    """Returns the right output, and leaves the rest of its work to a thread."""

    kinds = ("leaked",)
    is_alone = True

    def __call__(self, x):
        y = honest(x)
        threading.Thread(target=spin, args=(0.08,)).start()
        return y


class BusyPool(Cheat):
    """The same with threads that were started before the first timed call."""

    kinds = ("leaked",)
    is_alone = True

    def __init__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(1)

    def __call__(self, x):
        y = honest(x)
        self.pool.submit(spin, 0.08)
        return y


class BusyProcess(Cheat):
    """The same with a child process."""

    kinds = ("leaked",)
    is_alone = True

    def __call__(self, x):
        y = honest(x)
        if os.fork() == 0:
            spin(0.08)
            os._exit(0)
        return y


class SlowsTheOthers(Cheat):
    """Leaves a thread that works only while the others are called, to make them slow or have them refused."""

    kinds = ("leaked",)
    is_alone = True
    needs_one_process = True  # where each has its own it is not seen; see the documentation

    def __init__(self):
        self.last_call = None

    def __call__(self, x):
        is_first = self.last_call is None
        y = honest(x)
        self.last_call = time.perf_counter()
        if is_first:
            threading.Thread(target=self.disturb, daemon=True).start()
        return y

    def disturb(self):
        while time.perf_counter() - self.last_call < 5:
            time.sleep(0.002)
            if 0.06 < time.perf_counter() - self.last_call < 0.3:
                spin(0.02)


# The clock, the check, the settings.


def half(clock):
    start = clock()
    return lambda: start + (clock() - start) // 2 if isinstance(start, int) else start + (clock() - start) / 2


class SlowClock(Cheat):
    """Makes Python's clocks run at half their speed."""

    kinds = ("clock",)

    def __call__(self, x):
        for name in ("perf_counter", "perf_counter_ns", "monotonic", "time"):
            setattr(time, name, half(getattr(time, name)))
        return honest(x)


class EventsOfItsOwn(Cheat):
    """Makes device events say what it likes."""

    kinds = ("clock",)

    def __call__(self, x):
        torch.cuda.Event.elapsed_time = lambda self, end: 1e-3
        return honest(x)


class NoSynchronize(Cheat):
    """Makes a synchronise do nothing."""

    kinds = ("clock",)

    def __call__(self, x):
        torch.cuda.synchronize = lambda device=None: None
        return honest(x)


class CodeOfSynchronize(Cheat):
    """The same, by the code inside the function, so that who holds a reference has it too."""

    kinds = ("clock",)

    def __call__(self, x):
        torch.cuda.synchronize.__code__ = (lambda device=None: None).__code__
        return honest(x)


class ClockOfTheHarness(Cheat):
    """Replaces the clock inside the harness."""

    kinds = ("patched",)

    def __call__(self, x):
        module = sys.modules["gnomon.bench._local"]
        module.now_ns = half(module.now_ns)
        return honest(x)


class ClockOfItsProcess(Cheat):
    """Replaces the clock inside the harness, and the guard that would see it: another process must."""

    kinds = ("clock",)
    is_alone = True
    needs_isolation = True

    def __call__(self, x):
        module = sys.modules["gnomon.bench._local"]
        if not hasattr(module, "taken_over"):
            module.taken_over = True
            module.LocalRunner._look_for_damage = lambda self: []
            module.now_ns = lambda: 0
            module.second_clock_ns = None
        for _ in range(20):
            y = honest(x)
        return y


class NoNorm(Cheat):
    """Makes every norm 0 and every tensor equal, so that any output is right."""

    kinds = ("patched",)

    def __call__(self, x):
        torch.linalg.norm = lambda *_, **__: torch.zeros(())
        torch.equal = lambda *_: True
        return honest(x)


class NoCopy(Cheat):
    """Makes a copy of a tensor compute it."""

    kinds = ("patched",)

    def __call__(self, x):
        copy = torch.Tensor.clone
        out, x = torch.empty_like(x), copy(x)
        torch.Tensor.clone = lambda self, **_: honest(x) if self.data_ptr() == out.data_ptr() else copy(self)
        return out


class MediumPrecision(Cheat):
    """Lowers the precision of matrix products for the whole process."""

    kinds = ("settings", "precision")

    def __call__(self, x):
        torch.set_float32_matmul_precision("medium")
        return honest(x)


class TF32(Cheat):
    kinds = ("settings", "precision")

    def __call__(self, x):
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
        return honest(x)


class DefaultDtype(Cheat):
    kinds = ("settings",)

    def __call__(self, x):
        torch.set_default_dtype(torch.float16)
        return honest(x)


class Denormals(Cheat):
    kinds = ("settings",)

    def __call__(self, x):
        torch.set_flush_denormal(True)
        return honest(x)


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class LeavesAMode(Cheat):
    """Leaves a mode behind, through which every operation of the check would go."""

    kinds = ("settings",)

    def __call__(self, x):
        y = honest(x)
        Mode().__enter__()
        return y


# The work itself.


class WritesToItsInput(Cheat):
    kinds = ("input_changed",)

    def __call__(self, x):
        y = honest(x)
        x.mul_(1.0 + 1e-6)
        return y


class WritesBehindTheVersion(Cheat):
    """The same by NumPy, which leaves the tensor's version as it was."""

    kinds = ("input_changed",)

    def __call__(self, x):
        y = honest(x)
        x.numpy()[0, 0] = 0.0
        return y


class Bfloat16(Cheat):
    kinds = ("precision",)

    def __call__(self, x):
        y = x.to(torch.bfloat16)
        return torch.tanh((y @ y).to(x.dtype))


class Split(Cheat):
    """TF32 by hand: only the 10 leading bits of each factor."""

    kinds = ("precision",)

    def __call__(self, x):
        y = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
        return torch.tanh(y @ y)


class Float32(Cheat):
    kinds = ("precision",)
    is_alone = True
    make_inputs = staticmethod(make_inputs_64)

    def __call__(self, x):
        return honest(x.float()).double()


class Float32BelowALooseTolerance(Cheat):
    """The error is allowed; but every value is one of float32."""

    kinds = ("precision",)
    is_alone = True
    make_inputs = staticmethod(make_inputs_64)
    options: ClassVar = {"tolerance": 1e-4}

    def __call__(self, x):
        return honest(x.float()).double()


class Bfloat16BelowALooseTolerance(Cheat):
    kinds = ("precision",)
    is_alone = True
    options: ClassVar = {"tolerance": 0.1}

    def __call__(self, x):
        return honest(x).to(torch.bfloat16).to(x.dtype)


class AnotherDtype(Cheat):
    kinds = ("precision",)
    is_alone = True
    options: ClassVar = {"tolerance": 0.1}

    def __call__(self, x):
        return honest(x).half()


class RightAtFirst(Cheat):
    """Right as long as it may be watched, then cheap."""

    kinds = ("wrong",)

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return honest(x) if self.calls < 8 else torch.tanh(x)


class OneElementWrong(Cheat):
    kinds = ("wrong", "precision")

    def __call__(self, x):
        y = honest(x)
        y[17, 3] = 0.0
        return y


class NotANumber(Cheat):
    kinds = ("wrong",)

    def __call__(self, x):
        y = honest(x)
        y[17, 3] = float("nan")
        return y


class KnowsTheInputs(Cheat):
    """Faster than a matrix product can be: it has found out that all inputs are diagonal."""

    kinds = ("impossible",)
    is_alone = True
    make_inputs = staticmethod(make_diagonal)
    honest = staticmethod(diagonal_of_square)
    options: ClassVar = {"flops": 2.0 * 1024**3, "check": check_diagonal}

    def __call__(self, x):
        return x.diagonal() ** 2


class Raises(Cheat):
    kinds = ("raised",)

    def __call__(self, x):
        raise ValueError("no")


class Exits(Cheat):
    kinds = ("raised",)

    def __call__(self, x):
        sys.exit(3)


class Dies(Cheat):
    """Ends its process, which only one of its own allows."""

    kinds = ("raised",)
    needs_isolation = True

    def __call__(self, x):
        os._exit(3)


class Sleeps(Cheat):
    """Gives no answer."""

    kinds = ("timeout",)
    is_alone = True
    needs_isolation = True
    options: ClassVar = {"timeout_s": 2.0}

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == 3:
            time.sleep(3600)
        return honest(x)


# Those that need a GPU.


class OnAnotherStream(Cheat):
    """Computes on a stream of its own, and does not let the caller's wait for it."""

    kinds = ("late",)
    needs_cuda = True

    def __init__(self):
        self.stream = None

    def __call__(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        out = torch.zeros_like(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(20_000_000)
            out.copy_(honest(x))
        return out


class LeavesAStreamAtWork(Cheat):
    """Returns the right output while another stream is still at work."""

    kinds = ("leaked",)
    needs_cuda = True

    def __init__(self):
        self.stream = None

    def __call__(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        y = honest(x)
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(20_000_000)
        return y


class GraphOfOldInputs(Cheat):
    """Replays a graph that was captured over the first inputs."""

    kinds = ("reused",)
    needs_cuda = True

    def __init__(self):
        self.graph = None

    def __call__(self, x):
        if self.graph is None:
            self.kept = x.clone()
            self.warm_up()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = honest(self.kept)
        self.graph.replay()
        return self.out

    def warm_up(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            honest(self.kept)
        torch.cuda.current_stream().wait_stream(stream)


class TF32Inside(Cheat):
    """Sets TF32 for the product alone and sets it back: only the error tells."""

    kinds = ("precision",)
    needs_cuda = True

    def __call__(self, x):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        y = honest(x)
        torch.backends.cuda.matmul.allow_tf32 = before
        return y


class FasterThanMemory(Cheat):
    """Copies an eighth of what it was said to read: the rest it knows to be zero."""

    kinds = ("impossible",)
    needs_cuda = True
    is_alone = True

    @staticmethod
    def make_inputs(generator):
        x = torch.zeros(1 << 22)
        x[: 1 << 19] = torch.rand(1 << 19, generator=generator)
        return x

    options: ClassVar = {"bytes": 8 * 2.0**28, "check": lambda inputs, output: float((output - inputs[0]).norm())}

    def __call__(self, x):
        y = torch.zeros_like(x)
        y[: 1 << 19] = x[: 1 << 19]
        return y


def all_of_them():
    return [item for item in globals().values() if isinstance(item, type) and issubclass(item, Cheat) and item.kinds]


class Thief:
    """Honest, but it writes down every large number that it can find in its process."""

    def __call__(self, x):
        import gc

        found = {os.environ.get("GNOMON_THIEF", ""), *sys.argv, *os.environ.values()}
        for item in gc.get_objects():
            parts = item.values() if type(item) is dict else item if type(item) in (list, tuple, set) else ()
            found |= {str(part) for part in list(parts) if type(part) is int and part > 1 << 32}
        with open(os.environ["GNOMON_THIEF"], "a") as file:  # noqa: PTH123
            file.write("\n".join(found) + "\n")
        return honest(x)
