"""Writes the first images of Fashion-MNIST: make_photos.py FOLDER SHARDS TRAIN TEST
FOLDER/{train,test}/cN/*.png, FOLDER.npz with the same samples in the order of a folder's files, and three tar files with the
training set in the same order."""
import gzip
import io
import os
import struct
import sys
import tarfile
import zipfile
import zlib

DATA = "/usr/share/datasets/fashion-mnist/"


def read(name, head):
    with gzip.open(DATA + name + ".gz") as f:
        return f.read()[head:]


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[28 * y:28 * y + 28] for y in range(28))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def npy(descr, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s}" % (descr, shape)
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + data


folder, shards, counts = sys.argv[1], sys.argv[2], (int(sys.argv[3]), int(sys.argv[4]))
with zipfile.ZipFile(folder + ".npz", "w") as archive:
    for part, name, count in zip(("train", "test"), ("train", "t10k"), counts):
        images, labels = read(name + "-images-idx3-ubyte", 16), read(name + "-labels-idx1-ubyte", 8)
        order = sorted(range(count), key=lambda i: (labels[i], i))
        for i in order:
            os.makedirs("%s/%s/c%d" % (folder, part, labels[i]), exist_ok=True)
            with open("%s/%s/c%d/%05d.png" % (folder, part, labels[i], i), "wb") as f:
                f.write(png(images[784 * i:784 * i + 784]))
        archive.writestr("x_%s.npy" % part, npy("|u1", "(%d, 28, 28, 1)" % count,
                                                b"".join(images[784 * i:784 * i + 784] for i in order)))
        archive.writestr("y_%s.npy" % part, npy("<i8", "(%d,)" % count, b"".join(struct.pack("<q", labels[i]) for i in order)))
        for s in range(3 if part == "train" else 0):
            with tarfile.open(shards % s, "w") as tar:
                for i in order[count * s // 3:count * (s + 1) // 3]:
                    for ending, data in (("png", png(images[784 * i:784 * i + 784])), ("cls", b"%d" % labels[i])):
                        info = tarfile.TarInfo("%05d.%s" % (i, ending))
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
