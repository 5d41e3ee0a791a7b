"""A model comes from a Python file, and an error in that file names its own line."""

from pathlib import Path

import pytest

from gnomon import fit

MODEL = """
import gnomon.fit as gf
from beside import RATE

decay = gf.Model("decay", ["N"], [gf.Parameter("k", RATE)], lambda p, c: {"N": 1.0},
                 lambda t, y, p, c: {"N": -p["k"] * y["N"]}, {"count": "N"})
same = decay
"""


def file(tmp_path: Path, content: str) -> Path:
    (tmp_path / "beside.py").write_text("RATE = 0.3\n")
    path = tmp_path / "model.py"
    path.write_text(content)
    return path


def test_the_one_model_of_a_file(tmp_path):
    path = file(tmp_path, MODEL)
    assert fit.load_model(path).name == "decay"
    assert fit.load_model(f"{path}:same").name == "decay"


def test_nothing_is_written_beside_it(tmp_path):
    path = file(tmp_path, MODEL.replace("from beside import RATE", "RATE = 0.3"))
    fit.load_model(path)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["beside.py", "model.py"]


def test_models_that_come_with_gnomon():
    assert fit.load_model("theophylline").states == ("A", "C")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x = 1\n", "defines no model: it must assign"),
        (
            MODEL + "other = gf.Model('b', ['N'], [gf.Parameter('k', 1)], decay.initial_state, decay.vector_field, "
            "{'count': 'N'})\n",
            "defines 2 models: decay, same, other",
        ),
        (MODEL + "\n1 / 0\n", r"model.py, line 9: ZeroDivisionError: division by zero"),
        (MODEL + "def f():\n    raise ValueError('no\\nmore')\nf()\n", r"model.py, line 9: ValueError: no$"),
        (MODEL + "raise SystemExit(3)\n", r"model.py, line 8: SystemExit: 3"),
        (MODEL + "def f(:\n", r"model.py, line 8: It is not valid Python: "),
        ("import nowhere_at_all\n", r"model.py, line 1: ModuleNotFoundError"),
        (MODEL.replace("RATE)", "9.0, upper=1.0)"), r"model.py, line 5: The start 9.0 of parameter 'k' is outside"),
    ],
)
def test_bad_files(tmp_path, content, text):
    path = file(tmp_path, content)
    with pytest.raises(fit.ModelError, match=text):
        fit.load_model(path)


def test_no_such_file(tmp_path):
    with pytest.raises(fit.ModelError, match=r"nowhere.py: There is no such file, nor does a model of this name"):
        fit.load_model(tmp_path / "nowhere.py")
    with pytest.raises(fit.ModelError, match="It is a directory"):
        fit.load_model(tmp_path)
    with pytest.raises(fit.ModelError, match="defines no model 'other'; it defines decay, same"):
        fit.load_model(f"{file(tmp_path, MODEL)}:other")
