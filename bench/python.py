#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tandem_ec, the C API, pyeclib (isa_l_rs_cauchy) and zfec: encode and decode of k+m in one thread, by shard size.

  bench/python.py [-k 10] [-m 4] [--sizes 64,4096,...] [--json FILE] [--plot FILE.svg]

Needs an environment with tandem_ec and numpy; --plot needs matplotlib. pyeclib and zfec are omitted if they are not
installed. Each case runs in rounds. In a round every program runs once, so that other load slows all of them alike. The best
round of each counts. A round takes about a millisecond, less than a time slice. Decode: the first min(k, m) data shards are
lost. pyeclib and zfec take and return bytes objects, which they must allocate; pyeclib adds a header of 80 bytes. tandem_ec
and the C API write into the caller's buffers.

The C API is called through ctypes, which costs more than the binding. Below 4 KiB a shard, ignore that column.

GB/s are of data: k * shard bytes a call."""

import argparse
import ctypes
import pathlib
import platform
import time

import numpy
import rows
import tandem_ec


def c_api(k, m, data, parity, lost):
    """encode and decode of the library inside the package, with pointers made beforehand."""
    library = ctypes.CDLL(str(next(pathlib.Path(tandem_ec.__file__).parent.glob("libtandem.so*"))))

    class CodecOptions(ctypes.Structure):
        _fields_ = [("struct_bytes", ctypes.c_size_t), ("k", ctypes.c_uint32), ("m", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 6)]

    class ContextOptions(ctypes.Structure):
        _fields_ = [("struct_bytes", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("kernel", ctypes.c_char_p),
                    ("thread_count", ctypes.c_uint32), ("executor", ctypes.c_int32)]

    context, codec = ctypes.c_void_p(), ctypes.c_void_p()
    context_options = ContextOptions(ctypes.sizeof(ContextOptions), b"cpu", None, 1, 0)
    codec_options = CodecOptions(ctypes.sizeof(CodecOptions), k, m)
    for status in (library.tandem_context_create(ctypes.byref(context_options), ctypes.byref(context)),
                   library.tandem_codec_create(ctypes.byref(codec_options), ctypes.byref(codec))):
        if status:
            raise RuntimeError(f"status {status} of the C API")
    rows = [row.ctypes.data for row in data] + [row.ctypes.data for row in parity]
    shards = (ctypes.c_void_p * (k + m))(*rows)
    outputs = (ctypes.c_void_p * m)(*rows[k:])
    present = (ctypes.c_uint8 * (k + m))(*(i not in lost for i in range(k + m)))
    n = ctypes.c_size_t(data.shape[1])
    return {"encode": lambda: library.tandem_encode(context, codec, shards, outputs, n),
            "decode": lambda: library.tandem_decode(context, codec, shards, present, n)}


def tandem(k, m, data, parity, lost, whole):
    rs = tandem_ec.RS(k, m, threads=1, backend="cpu")
    present = [i not in lost for i in range(k + m)]
    return {"encode": lambda: rs.encode(data, parity), "decode": lambda: rs.decode(whole, present)}


def pyeclib(k, m, data, lost):
    from pyeclib.ec_iface import ECDriver

    driver = ECDriver(k=k, m=m, ec_type="isa_l_rs_cauchy")
    content = data.tobytes()
    left = [fragment for i, fragment in enumerate(driver.encode(content)) if i not in lost]
    assert driver.decode(left) == content
    return {"encode": lambda: driver.encode(content), "decode": lambda: driver.decode(left)}


def zfec(k, m, data, lost):
    import zfec as module

    rows = [row.tobytes() for row in data]
    encoder, decoder = module.Encoder(k, k + m), module.Decoder(k, k + m)
    parity = encoder.encode(rows, list(range(k, k + m)))
    # zfec wants a parity block in the place of each lost data block.
    left, numbers = list(rows), list(range(k))
    for turn, i in enumerate(lost):
        left[i], numbers[i] = parity[turn], k + turn
    assert decoder.decode(left, numbers) == rows
    wanted = list(range(k, k + m))
    return {"encode": lambda: encoder.encode(rows, wanted), "decode": lambda: decoder.decode(left, numbers)}


def seconds(function, repeats):
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - began) / repeats


def measure(k, m, n, rounds):
    whole = tandem_ec.empty(k + m, n)
    whole[:] = numpy.random.default_rng(1).integers(0, 256, whole.shape, numpy.uint8)
    data, parity, lost = whole[:k], whole[k:], list(range(min(k, m)))
    programs = {"C API": c_api(k, m, data, parity, lost), "tandem_ec": tandem(k, m, data, parity, lost, whole)}
    programs["tandem_ec"]["encode"]()  # parity for the decode
    for name, make in (("pyeclib", pyeclib), ("zfec", zfec)):
        try:
            programs[name] = make(k, m, data, lost)
        except ImportError as error:
            print(f"left out: {name}: {error}")
    result = {}
    for operation in ("encode", "decode"):
        repeats = {name: max(1, int(0.001 / max(1e-7, min(seconds(run[operation], 1) for _ in range(3)))))
                   for name, run in programs.items()}
        best = dict.fromkeys(programs, float("inf"))
        for _ in range(rounds):
            for name, run in programs.items():
                best[name] = min(best[name], seconds(run[operation], repeats[name]))
        result[operation] = best
    return result


def table(results, k):
    lines = []
    for operation in ("encode", "decode"):
        names = list(results[0][operation])
        lines += [f"| {operation}: bytes a shard | " + " | ".join(f"{name}: us, GB/s" for name in names) + " | tandem_ec / C API |",
                  "|---|" + "---|" * (len(names) + 1)]
        for row in results:
            best = row[operation]
            cells = [f"{t * 1e6:.2f}, {k * row['shard_bytes'] / t / 1e9:.2f}" for t in best.values()]
            lines.append(f"| {row['shard_bytes']} | " + " | ".join(cells) + f" | {best['C API'] / best['tandem_ec']:.2f} |")
        lines.append("")
    return "\n".join(lines)


def plot(results, k, m, path):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, operation in zip(axes, ("encode", "decode")):
        for name in results[0][operation]:
            axis.plot([row["shard_bytes"] for row in results], [k * row["shard_bytes"] / row[operation][name] / 1e9 for row in results],
                      marker="o", label=name)
        axis.set(title=f"{operation}, {k}+{m}, one thread", xlabel="bytes a shard", xscale="log", yscale="log")
    axes[0].set_ylabel("GB/s of data")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("-m", type=int, default=4)
    parser.add_argument("--sizes", default="64,1024,4096,65536,1048576")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args()
    results = []
    for n in map(int, arguments.sizes.split(",")):
        results.append({"shard_bytes": n, **measure(arguments.k, arguments.m, n, arguments.rounds)})
    info = tandem_ec.RS(1, 1, threads=1, backend="cpu").context_info()
    model = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")][:1]
    about = {"k": arguments.k, "m": arguments.m, "kernel": info["kernel"], "machine": (model or [platform.machine()])[0],
             "python": platform.python_version(), "tandem_ec": tandem_ec.__version__}
    print(", ".join(f"{name} {value}" for name, value in about.items()), "\n")
    print(table(results, arguments.k))
    if arguments.json:
        arguments.json.write_text(rows.dumps({**about, "seconds": results}))
    if arguments.plot:
        plot(results, arguments.k, arguments.m, arguments.plot)


if __name__ == "__main__":
    main()
