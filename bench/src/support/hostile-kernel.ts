/**
 * Code for an eval that writes to the kernel's control stream itself (docs/spec/kernel-protocol.md): what any
 * user's code can do, without root in the guest.
 */
import type { Sandbox } from "@forkd/sdk";

/** Finds the id of its own eval and the kernel's connection in the frames of its callers. */
const prelude = `
import os, struct, sys, time
def _kernel():
    frame = sys._getframe()
    while frame:
        if "ident" in frame.f_locals and "forkd_wire" in sys.modules:
            return frame.f_locals["ident"], sys.modules["forkd_wire"].control
        frame = frame.f_back
ident, control = _kernel()
def send(data):
    while data: data = data[os.write(control, data):]
def message(kind, payload, ident=ident):
    return struct.pack("<cII", kind, 4 + len(payload), ident) + payload
def value(text, form, status=0):
    return message(b"V", struct.pack("<BI", status, len(text)) + text + struct.pack("<I", len(form)) + form)
def hang():
    while True:
        try: time.sleep(1)
        except KeyboardInterrupt: pass
`;

/** Waits for the next message and answers it, after a valid answer to this eval. */
function answerNext(answer: string): string {
  return `send(value(b"1", b"1"))
head = os.read(control, 9)
other = struct.unpack("<I", head[5:9])[0]
send(${answer})
hang()`;
}

const evalWith = (body: string) => (sandbox: Sandbox) =>
  sandbox.eval(`${prelude}${body}`, { timeoutMs: 3000 });

/** The eval is answered while the code still runs; then the daemon asks for the contexts. */
const contextsWith = (answer: string) => async (sandbox: Sandbox) => {
  await sandbox.eval(`${prelude}${answerNext(answer)}`, { timeoutMs: 3000 });
  return sandbox.contexts.list();
};

/** Each ends with an answer or an error of ours. */
export const kernelAttacks: Readonly<Record<string, (sandbox: Sandbox) => Promise<unknown>>> = {
  "value, oversized": evalWith(`send(value(b"x", b"[" + b"{}," * 5_500_000 + b"{}]")); hang()`),
  "value, deep": evalWith(`send(value(b"x", b"[" * 8_000_000 + b"]" * 8_000_000)); hang()`),
  "value, endless": evalWith(`while True: send(message(b"V", b"\\0" * 9, ident ^ 1))`),
  "value, silent": evalWith("hang()"),
  "value, slow": evalWith(
    `for byte in value(b"1", b"1"):\n    os.write(control, bytes([byte]))\n    time.sleep(0.02)\nhang()`,
  ),
  "value, lying length of the message": evalWith(`send(b"V" + struct.pack("<I", 0xfffffff0)); hang()`),
  "value, lying length of the text": evalWith(
    `send(message(b"V", struct.pack("<BI", 0, 0x7fffffff))); hang()`,
  ),
  "value, wrong order": evalWith(`send(message(b"A", b"")); hang()`),
  "result, oversized": evalWith(
    `send(message(b"O", struct.pack("<BHBI", 0, 0, 2, 9_000_000) + b"x" * 9_000_000)); hang()`,
  ),
  "result, endless": evalWith(`while True: send(message(b"O", struct.pack("<BHBI", 0, 0, 1, 1) + b"x"))`),
  "result, endless and large": evalWith(
    `while True: send(message(b"O", struct.pack("<BHBI", 0, 0, 7, 4_000_000) + b"x" * 4_000_000))`,
  ),
  "result, lying length of the form": evalWith(
    `send(message(b"O", struct.pack("<BHBI", 0, 0, 1, 0x7fffffff))); hang()`,
  ),
  "result, unknown form": evalWith(`send(message(b"O", struct.pack("<BHBI", 0, 0, 99, 0))); hang()`),
  "result, invalid JSON": evalWith(
    `send(message(b"O", struct.pack("<BHBI", 0, 0, 10, 300_000) + b"[" * 300_000)); hang()`,
  ),
  "result, data that is not a table": evalWith(
    `send(message(b"O", struct.pack("<BHBI", 0, 0, 11, 2) + b"[]")); hang()`,
  ),
  "result, of another eval": evalWith(`send(message(b"O", struct.pack("<BH", 0, 0), ident ^ 1)); hang()`),
  "error, oversized": evalWith(
    `send(value(b"t" * 4_000_000, b'{"name":"' + b"n" * 6_000_000 + b'","value":"' + b"v" * 6_000_000 + b'"}', 2)); hang()`,
  ),
  "ready, in the middle": evalWith(`send(b"Y" + struct.pack("<I", 9_000_000) + b"y" * 9_000_000); hang()`),
  "output, endless": evalWith(`while True: print("x" * 10_000)`),
  "contexts, oversized": contextsWith(`message(b"A", b"\\0" * 16_000_000, other)`),
  "contexts, deep": contextsWith(`message(b"A", b"a\\0" * 100_000, other)`),
  "contexts, lying": contextsWith(`message(b"A", b"no end" * 1_000_000, other)`),
  "contexts, wrong order": contextsWith(`message(b"V", b"\\0" * 9, other)`),
};
