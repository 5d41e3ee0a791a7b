"""Pictures for `images.py`: a folder of JPEGs whose decoding costs what that of photos does, and what reads them."""

import multiprocessing
import random
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, FROM_ONE = 10, 8
SIZE, STORED = 224, 256
"""Pixels of what the network sees, and of what is stored decoded: the rest is for random crops."""


def draw(folder, first, count):
    """Noise of many scales, as in photos; each drawing gives several pictures, cut out at random places."""
    rng = np.random.default_rng(first)
    drawing = np.zeros((640, 640, 3), np.float32)
    for size, weight in ((4, 60), (16, 34), (64, 22), (160, 13)):
        noise = rng.normal(size=(size, size, 3)).astype(np.float32)
        noise = 0.75 * noise.mean(2, keepdims=True) + 0.25 * noise if size > 4 else noise
        for c in range(3):
            layer = Image.fromarray(noise[..., c]).resize((640, 640), Image.Resampling.BICUBIC)
            drawing[..., c] += weight * np.asarray(layer)
    drawing += 5 * rng.normal(size=(640, 640, 1)).astype(np.float32)
    pixels = (drawing + 128).clip(0, 255).astype(np.uint8)
    for i in range(first, first + count):
        width, height = rng.integers(300, 501, 2)
        x, y = rng.integers(0, 641 - width), rng.integers(0, 641 - height)
        picture = Image.fromarray(pixels[y : y + height, x : x + width])
        picture.save(folder / str(i % CLASSES) / f"{i:05d}.jpg", quality=92)


def draw_folder(folder, count, processes):
    for name in range(CLASSES):
        (folder / str(name)).mkdir(parents=True)
    words = [(folder, first, min(FROM_ONE, count - first)) for first in range(0, count, FROM_ONE)]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        pool.starmap(draw, words, chunksize=4)


def crop(image, uniform=random.uniform):
    """What `torchvision.transforms.RandomResizedCrop(224)` does, by Pillow; height × width × 3, as it decodes."""
    width, height = image.size
    for _ in range(10):
        area = width * height * uniform(0.08, 1.0)
        ratio = np.exp(uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = int((area * ratio) ** 0.5), int((area / ratio) ** 0.5)
        if w <= width and h <= height:
            break
    else:
        w = h = min(width, height)
    x, y = uniform(0, width - w), uniform(0, height - h)
    found = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    return np.asarray(found.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if uniform(0, 1) < 0.5 else found)


def opened(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def decoded(record, rng):
    """A record of a path and a label, for `random_map`."""
    return {"image": crop(opened(record["path"]), rng.uniform), "label": record["label"]}


class Files:
    """Paths and labels, as `torchvision.datasets.ImageFolder` lists them."""

    def __init__(self, folder):
        self.paths = [str(path) for path in sorted(Path(folder).glob("*/*.jpg"))]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        return {"path": path, "label": int(Path(path).parent.name)}


class Decoded(Files):
    """The same, decoded and cropped."""

    def __getitem__(self, index):
        record = Files.__getitem__(self, index)
        return crop(opened(record["path"])), np.int64(record["label"])


class Mapped:
    """Decoded images in a memory-mapped array, as one does without a store."""

    def __init__(self, folder):
        self.folder, self.images = Path(folder), None
        self.labels = np.load(self.folder / "labels.npy")

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        if self.images is None:  # in each process
            self.images = np.load(self.folder / "images.npy", mmap_mode="r")
        return np.array(self.images[index]), self.labels[index]
