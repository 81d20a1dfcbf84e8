#!/usr/bin/env python3
"""Makes the seeds of fuzz/corpus: small good files, and small wrong ones that a mutation would hardly find. Inputs that once
broke something are added by hand, with the fault in their name, and are left alone."""
import gzip
import hashlib
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def seed(target, name, data):
    folder = os.path.join(HERE, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)


def idx(kind, sizes, data):
    return struct.pack(">HBB", 0, kind, len(sizes)) + b"".join(struct.pack(">I", n) for n in sizes) + data


def npy(descr, shape, data, order="False", version=1):
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
    size = 2 if version == 1 else 4
    head += " " * (-(len(head) + 9 + size) % 64) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(head).to_bytes(size, "little") + head.encode() + data


def safetensors(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def idx_seeds():
    images = idx(8, [2, 3, 2], bytes(range(12)))
    seed("idx", "images", images)
    seed("idx", "labels", idx(8, [5], bytes(5)))
    seed("idx", "floats", idx(0x0D, [2, 2], struct.pack(">4f", 1, -2, 0.5, float("inf"))))
    seed("idx", "empty", idx(8, [0, 28, 28], b""))
    seed("idx", "short", images[:-1])
    seed("idx", "huge", idx(8, [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF], b""))
    packed = gzip.compress(images, mtime=0)
    seed("idx", "gzip", packed)
    seed("idx", "gzip-two-members", packed + gzip.compress(b"", mtime=0))
    seed("idx", "gzip-bomb", gzip.compress(idx(8, [60000, 28, 28], bytes(40000)), mtime=0))
    seed("idx", "gzip-cut", packed[:-6])


def preamble(version=1, kind=1, number=1, sender=2, to=3, address=bytes(18), job=b"job"):
    head = b"LOCKSTEP" + struct.pack(">HHIII", version, kind, number, sender, to)
    return b"\0" + head + address + bytes(2) + hashlib.sha256(job).digest()[:20]


def handshake_seeds():
    mapped = bytes(10) + b"\xff\xff\x0a\x00\x00\x01" + struct.pack(">H", 2222)
    seed("handshake", "call", preamble(address=mapped))
    seed("handshake", "ask-ipv6", preamble(kind=2, address=bytes.fromhex("20010db8") + bytes(11) + b"\1" + struct.pack(">H", 1)))
    seed("handshake", "other-job", preamble(job=b"other"))
    seed("handshake", "other-version", preamble(version=2))
    seed("handshake", "large-rank", preamble(sender=0xFFFFFFFF))
    seed("handshake", "short", preamble()[:40])
    seed("handshake", "http", b"\0GET / HTTP/1.1\r\nHost: worker\r\n\r\n" + bytes(40))
    seed("handshake", "reply", b"\1LOCKSTEP" + struct.pack(">HHI", 1, 0, 0))
    seed("handshake", "reply-other-version", b"\1LOCKSTEP" + struct.pack(">HHI", 9, 2, 0))
    seed("handshake", "address", b"\x0210.0.0.1:2222")
    seed("handshake", "address-ipv6", b"\x02[2001:db8::1]:65535")
    seed("handshake", "address-name", b"\x02host.example:0")


def packet_seeds():
    # rank, then packets: from, kind, epoch, number, sequence, tag, hash, (size of pieces), length of text, changed byte
    pieces = lambda sender, sequence, size: bytes([sender, 2, 0, 0, sequence, 0, 0, size, 4, 255])
    other = lambda sender, kind, number=0, epoch=0: bytes([sender, kind, epoch, number, 1, 0, 0, 4, 255])
    seed("packets", "two-rounds", b"\0" + b"".join(pieces(1, n, 1) + pieces(2, n, 0) + other(1, 3, n - 1) + other(2, 3, n - 1)
                                                 for n in (1, 2)))
    seed("packets", "commit", b"\1" + pieces(0, 1, 1) + pieces(2, 1, 1) + other(0, 4) + other(0, 8) + other(2, 8))
    seed("packets", "large", b"\0" + pieces(1, 1, 4) + pieces(2, 1, 5))
    seed("packets", "ahead", b"\0" + pieces(1, 3, 1) + pieces(2, 1, 1))
    seed("packets", "lost", b"\2" + other(0, 9) + other(1, 5) + other(1, 6, 0, 1))
    seed("packets", "announce", b"\1" + other(2, 5) + bytes([0, 6, 1, 0, 1, 0, 0, 3, 255]))
    seed("packets", "over", b"\1" + other(0, 7))
    seed("packets", "torn", b"\0" + pieces(1, 1, 1)[:-1] + bytes([2, 9]))


def npy_seeds():
    seed("npy", "f4", npy("<f4", "(2, 3)", struct.pack("<6f", *range(6))))
    seed("npy", "u1-scalar", npy("|u1", "()", b"\x07"))
    seed("npy", "bool", npy("|b1", "(4,)", b"\0\1\1\0"))
    seed("npy", "i8-version-2", npy("<i8", "(1,)", struct.pack("<q", -1), version=2))
    seed("npy", "fortran", npy("<f8", "(2, 2)", bytes(32), order="True"))
    seed("npy", "objects", npy("|O", "(1,)", b"\x80\x04N."))
    seed("npy", "huge", npy("<f8", "(9223372036854775807, 9223372036854775807)", b""))
    seed("npy", "many-axes", npy("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", b"\0"))


def archive(members, method=zipfile.ZIP_DEFLATED, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, method)
        z.comment = comment
    return out.getvalue()


def npz_seeds():
    x, y = npy("|u1", "(3, 2, 2)", bytes(12)), npy("<i4", "(3,)", bytes(12))
    both = [("x_train.npy", x), ("y_train.npy", y)]
    seed("npz", "deflated", archive(both))
    seed("npz", "stored", archive(both, zipfile.ZIP_STORED, b"a comment"))
    seed("npz", "no-arrays", archive([("readme.txt", b"none")]))
    seed("npz", "odd-name", archive([("a\x1b[31m\n.npy", x)]))
    seed("npz", "empty", archive([]))
    seed("npz", "bomb", archive([("x_train.npy", npy("|u1", "(1000000,)", bytes(1000000)))]))
    seed("npz", "cut", archive(both)[:-30])
    wide = bytearray(archive(both, zipfile.ZIP_STORED))
    at = wide.rfind(b"PK\5\6")
    wide[at + 10:at + 20] = b"\xff" * 10
    seed("npz", "wants-64-bit", bytes(wide))


def csv_seeds():
    seed("csv", "plain", "1,2,0\n3.5,-4e2,1\n")
    seed("csv", "header", "a,b,label\n1,2,0\n")
    seed("csv", "quoted", '"1","2.5",0\r\n "3",4 ,1\r\n')
    seed("csv", "float-labels", "1,0.25\n2,0.5\n")
    seed("csv", "odd-labels", "1,1e300\n2,0x10\n3,nan\n4,-0\n")
    seed("csv", "big-label", "1,9007199254740993\n2,99999999999999999999\n")
    seed("csv", "ragged", "1,2,3\n4,5\n")
    seed("csv", "control-characters", "1,2\n\x1b[2J,\x07\n")
    seed("csv", "zero-byte", "1,2\x00,3\n")
    seed("csv", "empty", "")


def safetensors_seeds():
    two = {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
           "b": {"dtype": "U8", "shape": [], "data_offsets": [8, 9]}}
    seed("safetensors", "two", safetensors(two, bytes(9)))
    seed("safetensors", "short", safetensors(two, bytes(8)))
    seed("safetensors", "long", safetensors(two, bytes(10)))
    overlap = {"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
               "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}
    seed("safetensors", "overlap", safetensors(overlap, bytes(3)))
    huge = {"a": {"dtype": "F64", "shape": [2 ** 62, 2 ** 62], "data_offsets": [0, 0]}}
    seed("safetensors", "huge", safetensors(huge))
    seed("safetensors", "nothing-in-it", safetensors({"a": {"dtype": "I64", "shape": [0, 7], "data_offsets": [0, 0]}}))
    seed("safetensors", "bfloat", safetensors({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, bytes(2)))
    seed("safetensors", "odd-name", safetensors({"\u001b[1m\n": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}},
                                                b"\1"))
    seed("safetensors", "twice", safetensors(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'
                                             b'"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0"))
    seed("safetensors", "long-header", struct.pack("<Q", 2 ** 63) + b"{}")
    seed("safetensors", "deep", safetensors(b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"))


def weights_seeds():
    x, y = npy("<f4", "(2, 3)", struct.pack("<6f", *range(6))), npy("<i8", "()", bytes(8))
    both = [("dense/kernel.npy", x), ("b.npy", y)]
    seed("weights", "deflated", archive(both))
    seed("weights", "stored", archive(both, zipfile.ZIP_STORED))
    seed("weights", "no-array", archive(both + [("readme.txt", b"none")], zipfile.ZIP_STORED))
    seed("weights", "empty-archive", archive([]))
    seed("weights", "odd-name", archive([("a\x1b[31m\n.npy", x)], zipfile.ZIP_STORED))
    over = bytearray(archive([("a.npy", x), ("b.npy", x)], zipfile.ZIP_STORED))
    at = over.rfind(b"PK\1\2")
    over[at + 42:at + 46] = bytes(4)  # the second member is the first one's bytes
    seed("weights", "over-each-other", bytes(over))
    seed("weights", "halves", safetensors({"a": {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]},
                                           "b": {"dtype": "BF16", "shape": [2], "data_offsets": [6, 10]}},
                                          struct.pack("<5H", 0x7E01, 0x0001, 0xFC00, 0x7FC0, 0x8001)))
    seed("weights", "npy", x)
    seed("weights", "nans", npy("<f4", "(2,)", struct.pack("<2I", 0x7FC00000, 0xFFC00001)))


def hdf5_seeds():
    folder = os.path.join(HERE, "..", "..", "tests", "reference", "weights")
    for name in os.listdir(folder):
        if name.startswith("hostile_") or name in ("embedding.weights.h5", "embedding.keras", "sequential.keras"):
            with open(os.path.join(folder, name), "rb") as f:
                seed("weights", "h5-" + name.replace("hostile_", "").replace("_", "-").rsplit(".", 1)[0], f.read())


def checkpoint_seeds():
    zero = ["learning_rate", "momentum", "nesterov", "beta_1", "beta_2", "rho", "epsilon", "weight_decay", "clipvalue", "clipnorm",
            "global_clipnorm", "gradient_accumulation_steps", "initial_accumulator_value"]
    job = {"model": "m", "losses": ["mean_squared_error"], "results": ["loss", "accuracy"], "optimizer": "sgd"}
    job.update({"optimizer/" + key: 0.0 for key in zero})
    job.update({"optimizer/momentum": 0.9, "optimizer/nesterov": False, "optimizer/gradient_accumulation_steps": 0})
    job.update({"schedule/" + key: 0.0 for key in ("rate", "decay", "alpha", "from")})
    job.update({"schedule/" + key: 0 for key in ("kind", "steps", "warmup", "count")})
    job.update({"schedule/staircase": False, "schedule/boundaries": [], "schedule/values": [], "norms_by_lane": 0})
    state = {"random/seed": "0", "random/step": "0", "random/run": "0", "learning_rate": "nan"}
    state.update({"position/" + key: 0 for key in ("epoch", "step", "pass", "batch")})
    state.update({"tally/loss": 0.0, "tally/losses": [0.0] * 8, "tally/samples": 0, "tally/steps": 0, "tally/metric/0": [0.0, 0.0]})
    file = {"bytes": 208, "sha256": "0" * 64}
    good = {"format": "lockstep checkpoint", "version": 1, "lockstep": "0.1.0", "step": 0, "epoch": 0, "job": job, "fit": None,
            "bits": {"class": "x"}, "other_bits": [], "state": state,
            "best": {"monitor": "loss", "value": 0.5, "step": 3},
            "history": {"names": ["loss", "accuracy"], "epochs": [[0.5, "nan"], [1, 2.5]]},
            "files": {"model.safetensors": file, "optimizer.safetensors": file}}

    def changed(name, **keys):
        seed("checkpoint", name, json.dumps({**good, **keys})[:-1] + "\n}")
    changed("good")
    changed("of-a-fit", fit={"data": {"samples": 3}, "shuffle": True}, state={**state, "callback/0": "00ff", "callback/1": {"in": "x"}})
    changed("another-model", job={**job, "model": "other"})
    changed("negative", state={**state, "position/step": -1})
    changed("large", state={**state, "random/step": "18446744073709551616", "tally/loss": 1e308, "position/batch": 2 ** 63 - 1})
    changed("many-names", history={"names": ["a"] * 1000, "epochs": [[0] * 1000]})
    changed("ragged", history={"names": ["loss"], "epochs": [[1], [1, 2], []]})
    changed("no-files", files={})


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record_line(value):
    text = json.dumps(value, separators=(",", ":"))[:-1]
    return '%s,"crc":"%08x"}\n' % (text, crc32c(text.encode()))


def record_seeds():
    head = {"lockstep_record": 1, "id": "0123456789abcdef" * 2, "server": 0, "servers": 2, "staleness": 4, "accumulate": 1,
            "scale_rate": False, "version": 0, "sha256": "0" * 64, "job": {"model": "m", "fit": {"batch_size": 32}},
            "own": ["train", "mnist-cnn"]}

    def push(version, read, **keys):
        value = {"version": version, "worker": version % 3, "epoch": 0, "batch": version - 1, "run": version - 1, "read": read,
                 "rate": 0.001, "sha256": "a" * 64}
        return {key: v for key, v in {**value, **keys}.items() if v is not None}

    def lines(name, *values):
        seed("record", name, "".join(record_line(v) for v in values))
    three = [push(1, [0, 0]), push(2, [0, 3]), push(3, [2, 2])]
    lines("good", head, *three)
    lines("head-alone", head)
    lines("accumulated", dict(head, accumulate=2), push(1, [0, 0], sha256=None), push(1, [0, 0], batch=1), push(2, [1, 0], sha256=None))
    lines("gap", head, push(1, [0, 0]), push(3, [1, 0]))
    lines("read-too-new", head, push(1, [1, 0]))
    lines("large", dict(head, version=2 ** 62 - 1, staleness=2 ** 63 - 1), push(2 ** 62, [2 ** 62 - 1, 2 ** 63 - 1]))
    lines("many-servers", dict(head, servers=64, server=63), push(1, [0] * 64))
    lines("too-many-servers", dict(head, servers=10 ** 9, server=7), push(1, [0]))
    lines("no-job", {key: v for key, v in head.items() if key != "job"})
    whole = "".join(record_line(v) for v in [head] + three)
    seed("record", "torn", whole[:-30])
    seed("record", "zeros-after", whole + "\0" * 40)
    seed("record", "damaged", whole.replace('"read":[0,3]', '"read":[0,4]'))
    seed("record", "empty", "")


def layer(kind, **config):
    return {"module": "keras.layers", "class_name": kind, "config": config, "registered_name": None}


def keras_seeds():
    def model(kind, config):
        return json.dumps({"module": "keras", "class_name": kind, "config": config, "registered_name": kind,
                           "keras_version": "3.0.0", "backend": "tensorflow"})
    inputs = layer("InputLayer", batch_shape=[None, 6, 6, 2], dtype="float32", name="x")
    conv = layer("Conv2D", name="c", filters=4, kernel_size=[3, 3], strides=[2, 1], padding="same", activation="relu")
    dense = layer("Dense", name="d", units=3, activation="softmax")
    flat = layer("Flatten", name="f")
    seed("keras", "sequential", model("Sequential", {"name": "s", "layers": [inputs, conv, flat, dense]}))
    seed("keras", "no-input", model("Sequential", {"name": "s", "layers": [dense], "build_input_shape": [None, 5]}))
    seed("keras", "huge", model("Sequential", {"name": "s", "layers": [
        layer("InputLayer", batch_shape=[None, 2 ** 40], dtype="float32", name="x"), layer("Dense", name="d", units=2 ** 40)]}))
    seed("keras", "negative", model("Sequential", {"name": "s", "layers": [
        inputs, layer("Conv2D", name="c", filters=-4, kernel_size=[0, -1], strides=[0, 0])]}))
    others = [layer("BatchNormalization", name="b", momentum=0.9, epsilon=0.001),
              layer("MaxPooling2D", name="m", pool_size=[2, 2]), layer("Dropout", name="o", rate=0.5),
              layer("Activation", name="a", activation="tanh"), layer("GlobalAveragePooling2D", name="g")]
    seed("keras", "others", model("Sequential", {"name": "s", "layers": [inputs] + others}))
    tensor = {"class_name": "__keras_tensor__", "config": {"shape": [None, 6, 6, 2], "dtype": "float32",
                                                           "keras_history": ["x", 0, 0]}}

    def called(spec, *on):
        spec = dict(spec, name=spec["config"]["name"])
        spec["inbound_nodes"] = [{"args": list(on), "kwargs": {}}] if on else []
        return spec
    functional = {"name": "m", "trainable": True, "layers": [called(inputs), called(flat, tensor)],
                  "input_layers": [["x", 0, 0]], "output_layers": [["f", 0, 0]]}
    seed("keras", "functional", model("Functional", functional))
    loop = dict(tensor, config=dict(tensor["config"], keras_history=["f", 0, 0]))
    seed("keras", "loop", model("Functional", dict(functional, layers=[called(inputs), called(flat, loop)])))
    seed("keras", "none", model("Sequential", {"name": "s", "layers": []}))


def text_seeds():
    names = ["cpu:0", "/job:localhost/replica:0/task:0/device:GPU:1", "gpu:0-1,cpu", "cpu:0[0-3,5]", "cpu:0-999",
             "/gpu:99999999999999999999", "cpu:5-2", ",", "cpu:0[", "/device:CPU:\x01", "cuda:1", "cpu:0-2147483647"]
    for i, name in enumerate(names):
        seed("names", "name-%02d" % i, bytes([i % 2]) + name.encode())
    options = ["--batch-size\n64\n--lr=0.25", "--nesterov\non\nmodel", "--nesterov=perhaps", "--batch-size\n-1", "--lr\n1e-400",
               "--lr\nnan", "--seed\n0xffffffffffffffff", "--seed=99999999999999999999", "--optimizer\nsdg", "--\n--lr",
               "--batch-size", "--save=\x1b[2J", "--lr\n0x1p-3", "--batchsize=3"]
    for i, option in enumerate(options):
        seed("options", "option-%02d" % i, option)


def program_seeds():
    # batch, lanes, special, random (3 bytes), then ops: number, tensor, arguments
    head = bytes([7, 3, 0, 0, 1, 1])
    conv = bytes([0, 0, 1, 7, 0, 1, 3, 1])
    seed("graph", "convolution-relu", head + conv)
    seed("graph", "pool-dense", head + conv + bytes([11, 2, 0, 1, 0, 13, 3, 2, 4, 9, 3, 5]))
    seed("graph", "batch-norm-residual", head + conv + bytes([14, 2, 7, 3, 1, 3, 4, 18, 5, 2, 6, 3]))
    seed("graph", "depthwise-softmax", bytes([15, 11, 0, 0, 9, 9]) + bytes([1, 0, 1, 0, 0, 1, 13, 1, 2, 2, 30, 15, 3, 19, 4]))
    seed("graph", "many-lanes", bytes([2, 11, 0, 0, 5, 5]) + conv + bytes([17, 2, 6, 3, 10, 3, 2]))
    for i, name in enumerate(["nan", "infinity", "minus-infinity", "subnormal", "minus-zero"]):
        seed("graph", name, bytes([5, 2, 1 + i, 0, 3, 3]) + conv + bytes([11, 2, 0, 1, 0, 13, 3, 2, 4, 9, 3, 5]))
    for i in range(8):
        seed("model", "model-%d" % i, bytes((7 * i + 13 * j * (i + 1)) % 256 for j in range(40)))
    seed("model", "linear", bytes([0, 2, 31, 5]))


def png(width, height, color, depth, rows, chunks=b"", interlace=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b""))


def palette(colors):
    data = bytes(v for c in colors for v in c)
    return struct.pack(">I", len(data)) + b"PLTE" + data + struct.pack(">I", zlib.crc32(b"PLTE" + data))


def image_seeds():
    """The .jpg files of this folder were written by libjpeg-turbo."""
    pictures = {
        "grey.png": png(3, 2, 0, 8, [b"\x00\x80\xff", b"\x10\x20\x30"]),
        "one-bit.png": png(9, 1, 0, 1, [b"\xa5\x80"]),
        "rgb.png": png(2, 2, 2, 8, [bytes(range(6)), bytes(range(200, 206))]),
        "rgba.png": png(2, 1, 6, 8, [bytes([9, 8, 7, 0, 1, 2, 3, 255])]),
        "grey-alpha.png": png(2, 1, 4, 8, [bytes([9, 0, 200, 255])]),
        "palette.png": png(3, 1, 3, 8, [bytes([0, 1, 1])], palette([(1, 2, 3), (250, 251, 252)])),
        "sixteen-bit.png": png(2, 1, 2, 16, [bytes(range(12))]),
        "bad-palette.png": png(2, 1, 3, 8, [bytes([0, 9])], palette([(1, 2, 3)])),
        "huge.png": png(60000, 60000, 0, 8, [b""]),
    }
    for name, data in pictures.items():
        seed("image", name, data)
    seed("image", "cut.png", pictures["rgb.png"][:-20])
    return pictures


def tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as f:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            f.addfile(info, io.BytesIO(data))
    return out.getvalue()[:4096 + 512 * 16]


def table_seeds():
    seed("table", "good.csv", 'age,city,"the ""x""",kind\n1,Ulm,2.5,a\n2,,,b\n?,"New\nYork",1e3,a\n')
    seed("table", "no-header.csv", "5.1,3.5,Iris-setosa\n4.9,3.0,Iris-virginica\n")
    seed("table", "numbers.csv", "a,b,c\n1,2,3\n4,5,6\n")
    seed("table", "mixed.csv", "a,b\n1,x\nfive,y\n")
    seed("table", "open-quote.csv", 'a,b\n1,"x\n2,y\n')
    seed("table", "quote-inside.csv", 'a,b,c\n5" pipe,"x\n%s",1\n6" pipe,"z",2\n' % ("y" * 200))
    seed("table", "after-quote.csv", 'a,b\n1,"x"z\n')
    seed("table", "same-names.csv", "a,a\nx,y\n")
    seed("table", "many-texts.csv", "a,b\n" + "".join("t%d,1\n" % i for i in range(40)))
    seed("table", "huge-numbers.csv", "a,b\n1e308,1\n-1e308,2\n")
    seed("table", "saved.json", json.dumps({"lockstep_table": 1, "header": True, "missing": "fill", "columns": [
        {"name": "a", "kind": "number", "median": 1, "mean": 1, "deviation": 2},
        {"name": "b", "kind": "text", "values": ["", "x"]}], "label": {"name": "c", "kind": "class", "values": ["y"]}}))


def tar_seeds():
    pictures = image_seeds()
    rgb, grey = pictures["rgb.png"], pictures["grey.png"]
    seed("tar", "good.tar", tar([("a/0.png", rgb), ("a/0.cls", b"3\n"), ("b.cls", b"1"), ("b.png", grey), ("c.json", b"{}")]))
    seed("tar", "long-name.tar", tar([("x" * 150 + ".png", rgb), ("x" * 150 + ".cls", b"0")]))
    seed("tar", "no-class.tar", tar([("a.png", rgb)]))
    seed("tar", "bad-class.tar", tar([("a.png", rgb), ("a.cls", b"cat")]))
    seed("tar", "broken-image.tar", tar([("a.png", rgb[:30]), ("a.cls", b"0"), ("b.png", rgb), ("b.cls", b"0")]))
    seed("tar", "cut.tar", tar([("a.png", rgb), ("a.cls", b"0")])[:700])


def tokenizer_seeds():
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    names = {b: chr(b) for b in printable}
    for b in range(256):
        names.setdefault(b, chr(256 + len(names) - len(printable)))
    vocab = {names[b]: b for b in range(256)}
    merges = ["t h", "th e", "\u0120 the", "e n", "en d", "i n"]
    for merge in merges:
        vocab[merge.replace(" ", "")] = len(vocab)
    plain = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
              r"\s+(?!\S)|\s+")
    split = {"type": "Split", "pattern": {"Regex": llama3}, "behavior": "Isolated", "invert": False}

    def tokenizer(pre, added=(), **model):
        model = {"type": "BPE", "vocab": vocab, "merges": merges, **model}
        tokens = [{"id": 270 + i, "content": text, "normalized": False, **more} for i, (text, more) in enumerate(added)]
        return b"\0" + json.dumps({"added_tokens": tokens, "pre_tokenizer": pre, "decoder": {"type": "ByteLevel"},
                                   "model": model}, ensure_ascii=False, separators=(",", ":")).encode()

    special = [("<|endoftext|>", {}), ("<|end", {"lstrip": True}), ("line", {"rstrip": True, "normalized": True})]
    seed("tokenizer", "gpt2.json", tokenizer({"type": "ByteLevel", "add_prefix_space": True}, special))
    seed("tokenizer", "llama3.json", tokenizer({"type": "Sequence", "pretokenizers": [split, plain]}, special[:1],
                                               ignore_merges=True, merges=[m.split(" ") for m in merges]))
    seed("tokenizer", "no-rule.json", tokenizer(plain))
    seed("tokenizer", "pattern.json", b'\0{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":'
         b'{"Regex":"x"},"behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]},"decoder":{"type":"ByteLevel"},'
         b'"model":{"vocab":{},"merges":[]}}')
    seed("tokenizer", "huge-id.json", b'\0{"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},'
         b'"model":{"vocab":{"a":16777215},"merges":[]}}')
    pair = json.dumps(vocab, ensure_ascii=False, separators=(",", ":")).encode()
    seed("tokenizer", "pair", b"\1" + pair + b"\0#version: 0.2\n" + "\n".join(merges).encode() + b"\n")
    seed("tokenizer", "pair-bad-merge", b"\1" + b'{"a":0,"b":1,"ab":2}\0a b\r\nb  a\n')
    seed("tokenizer", "characters", "\2It's the l\u00e4st \U0001f600\n")
    seed("tokenizer", "characters.json", b'\0{"format":"lockstep-characters","characters":[10,32,97,128512]}')
    seed("tokenizer", "llm.c", b"\3" + struct.pack("<3i", 20240520, 1, 3) + bytes(1012) + struct.pack("<3H", 1, 2, 50256))
    seed("tokenizer", "u32", b"\3" + struct.pack("<2I", 128000, 0xFFFFFFFF))


for make in (idx_seeds, handshake_seeds, packet_seeds, npy_seeds, npz_seeds, csv_seeds, safetensors_seeds, weights_seeds, hdf5_seeds, checkpoint_seeds,
             record_seeds, keras_seeds, text_seeds, program_seeds, table_seeds, tar_seeds, tokenizer_seeds):
    make()
