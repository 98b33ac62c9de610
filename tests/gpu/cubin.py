# SPDX-License-Identifier: Apache-2.0
"""Reads properties of the kernels from a CUDA program's machine code (a 64-bit ELF file), without NVIDIA's tools."""

import struct


class Kernel:
    def __init__(self, instructions, registers, frame_bytes, shared_bytes):
        self.instructions = instructions  # bytes: 16 for each, on every architecture since 7.0
        self.registers = registers
        self.frame_bytes = frame_bytes  # of local memory: a kernel without arrays of its own has it for spills
        self.shared_bytes = shared_bytes

    def instruction_count(self):
        """Without what only fills the last lines: jumps to themselves and no-operations behind them."""
        words = [self.instructions[at : at + 16] for at in range(0, len(self.instructions), 16)]
        while words and opcode(words[-1]) == NOP:
            words.pop()
        return len(words)

    def opcodes(self):
        return [opcode(self.instructions[at : at + 16]) for at in range(0, len(self.instructions), 16)]


NOP = 0x118


def opcode(instruction):
    """What it does; the three bits above these say what its operands are: registers, constants, immediates."""
    return int.from_bytes(instruction[:2], "little") & 0x1FF


def sections(image):
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    table, size, count, names = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    text = headers[names]
    for header in headers:
        start = text[4] + header[0]
        name = image[start : image.index(b"\0", start)].decode()
        # A section of type NOBITS has a size, and no bytes.
        yield name, header, b"" if header[1] == 8 else image[header[4] : header[4] + header[5]]


# Attributes of .nv.info: (format, attribute, value or size of what follows).
FRAME_SIZE, MIN_STACK_SIZE, REGISTER_COUNT = 0x11, 0x12, 0x2F


def attributes(data):
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:  # that many bytes follow
            yield attribute, data[at : at + size]
            at += size


def kernels(image):
    """{name: Kernel} of every entry point."""
    found, symbols, frames, shared, registers, names = {}, [], {}, {}, {}, b""
    every = list(sections(image))
    for name, header, data in every:
        if header[1] == 2:  # symbols; their names are in the section that it links to
            names = every[header[6]][2]
            symbols = [struct.unpack_from("<IBBHQQ", data, i) for i in range(0, len(data), 24)]

    def symbol_name(index):
        start = symbols[index][0]
        return names[start : names.index(b"\0", start)].decode()

    for name, header, data in every:
        if name == ".nv.info":
            for attribute, value in attributes(data):
                if attribute in (FRAME_SIZE, REGISTER_COUNT):
                    index, number = struct.unpack("<II", value)
                    (frames if attribute == FRAME_SIZE else registers)[symbol_name(index)] = number
        elif name.startswith(".nv.shared."):
            shared[name[len(".nv.shared.") :]] = header[5]
    for name, header, data in every:
        if name.startswith(".text."):
            kernel = name[len(".text.") :]
            found[kernel] = Kernel(data, registers.get(kernel, header[7] >> 24), frames.get(kernel, 0), shared.get(kernel, 0))
    return found
