// Node kernel of forkd: evaluates code for the host over descriptor 3 (docs/spec/kernel-protocol.md).
//
// Invariants:
// - One message at a time, in order: while an eval awaits, later messages wait, but the event loop runs.
// - No exception, rejection, exit() or interrupt of user code stops the process or truncates a reply.
// - If the addon (reseed.node, beside this file or in FORKD_RESEED) is missing, `Y` and the reply to `R`
//   report it.
// Start: node --no-force-async-hooks-checks kernel.cjs (without the option, code stopped in a timer aborts
// Node).
"use strict";
const { Console } = require("node:console");
const crypto = require("node:crypto");
const fs = require("node:fs");
const net = require("node:net");
const path = require("node:path");
const { Writable } = require("node:stream");
const vm = require("node:vm");
const { callbacks, reseed, watch } = require("./after-fork.cjs");
const { setEmit, showMain } = require("./display.cjs");
const { dropContext, enter, listContexts, named, newContext, Refused, setEnv } = require("./contexts.cjs");
const { textAt, variablesOf, warmed } = require("./contexts.cjs");
const { explain, show, writeAll } = require("./evaluate.cjs");

const MAX_MESSAGE = 16 << 20;
const EMPTY = Buffer.alloc(0);
const TEXT_CUT = 16; // flags in the status of a value
const JSON_CUT = 32;
const HAS_COUNT = 64;
const HAS_DROPPED = 128;
const MAX_RESULTS = 200;
const MAX_RESULT_BYTES = 8 << 20; // of one eval
const KIND = { A: 65, C: 67, D: 68, E: 69, N: 78, O: 79, P: 80, R: 82, V: 86, W: 87, X: 88, Y: 89, Z: 90 };

function loadAddon() {
  const places = process.env.FORKD_RESEED
    ? [process.env.FORKD_RESEED]
    : [path.join(__dirname, "reseed.node"), path.join(__dirname, "../../build/reseed.node")];
  for (const place of places) {
    try {
      return require(place);
    } catch {
      // try the next one; `Y` reports that there is none
    }
  }
  return null;
}

const addon = loadAddon();
watch(addon);

// --- Interrupts: see interrupt.c. Without the addon, Node's own mechanism, which misses some interrupts.

const watched = addon !== null && addon.watch((stopped) => interruptCurrent(stopped));
let guard = addon?.guard;
if (!watched) {
  const key = Symbol.for("forkd.guarded");
  const slot = { run: null };
  Object.defineProperty(globalThis, key, { value: slot });
  const script = new vm.Script("globalThis[Symbol.for('forkd.guarded')].run()");
  guard = (run) => {
    slot.run = run;
    try {
      script.runInThisContext({ breakOnSigint: true, displayErrors: false });
      return true;
    } catch (error) {
      if (error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") return false;
      throw error;
    }
  };
  process.on("SIGINT", () => interruptCurrent());
}

// --- Evals

const described = (name) => ({
  text: Buffer.from(`${name}\n`),
  form: Buffer.from(JSON.stringify({ name, value: "" })),
});
const INTERRUPTED = described("Interrupted");
const NOTHING = { text: EMPTY, form: EMPTY };
const RESET = Symbol("reset");
let count = 0;
let current = null; // the eval that has no reply yet

function evaluate(id, name, code, variables) {
  const owner = named(name);
  const all = { ...owner.env, ...variables };
  const restore = Object.keys(all).length > 0 ? setEnv(all) : null;
  owner.count++;
  const job = (current = { id, count: owner.count, results: 0, bytes: 0, dropped: 0, restore });
  const ended = (error, value) => {
    if (current === job) finish(job, error, value);
  };
  let outcome = null;
  let started = false;
  count++;
  const whole = guard(() => {
    try {
      // A plain script completes at once and is printed under the same guard.
      enter(owner);
      owner.run(code, `<eval-${count}>`, (error, value) => {
        if (started) ended(error, value);
        else outcome = printed(error, value);
      });
    } catch (error) {
      outcome = printed({ value: error });
    }
  });
  started = true;
  if (outcome !== null) return answerValue(job, outcome.status, outcome.shown);
  // The interrupt must also stop microtasks that the eval may have started.
  if (!whole && watched) addon.again();
  else if (!whole) interruptCurrent();
}

function printed(error, value) {
  try {
    if (error !== null) return { status: 2, shown: explain(error) };
    if (value === undefined) return { status: 1, shown: NOTHING };
    const shown = show(value);
    showMain(value, shown.text);
    return { status: 0, shown };
  } catch (failure) {
    try {
      return { status: 2, shown: explain({ value: failure }) };
    } catch {
      return { status: 2, shown: described("Error") };
    }
  }
}

/** Replies to an eval that awaited. */
function finish(job, error, value) {
  let outcome = null;
  guard(() => (outcome = printed(error, value)));
  if (outcome !== null) answerValue(job, outcome.status, outcome.shown);
  else answerValue(job, 3, INTERRUPTED);
  pump();
}

/** Handles an interrupt outside of guard(): replies now, although the awaited work may continue. */
function interruptCurrent(stopped = false) {
  // An uncaught exception makes Node repair its stack of async ids.
  if (stopped)
    setImmediate(() => {
      throw RESET;
    });
  if (current === null) return;
  if (current.forking) answerError(current.id, "interrupted");
  else answerValue(current, 3, INTERRUPTED);
  pump();
}

/** Sends a result of the eval in progress. */
setEmit((isMain, mask, packed) => {
  const job = current;
  if (job === null || job.forking) return false;
  const size = packed.reduce((sum, [, data]) => sum + 5 + data.length, 7);
  if (job.bytes + size > MAX_RESULT_BYTES || (job.results >= MAX_RESULTS && !isMain)) {
    job.dropped++;
    return true;
  }
  job.results++;
  job.bytes += size;
  const head = Buffer.allocUnsafe(12);
  head[0] = KIND.O;
  head.writeUInt32LE(size, 1);
  head.writeUInt32LE(job.id, 5);
  head[9] = isMain ? 1 : 0;
  head.writeUInt16LE(mask, 10);
  const parts = [head];
  for (const [number, data] of packed) {
    const form = Buffer.allocUnsafe(5);
    form[0] = number;
    form.writeUInt32LE(data.length, 1);
    parts.push(form, data);
  }
  send(Buffer.concat(parts));
  return true;
});

function answerValue(job, status, { text, form, whole = 0, large = false }) {
  job.restore?.();
  const end = 18 + text.length + form.length;
  const countAt = whole > 0 ? end + 8 : end;
  const data = Buffer.allocUnsafe(countAt + (job.dropped > 0 ? 8 : 4));
  data[0] = KIND.V;
  data.writeUInt32LE(data.length - 5, 1);
  data.writeUInt32LE(job.id, 5);
  const cut = (whole > 0 ? TEXT_CUT : 0) | (large ? JSON_CUT : 0);
  data[9] = status | cut | HAS_COUNT | (job.dropped > 0 ? HAS_DROPPED : 0);
  data.writeUInt32LE(text.length, 10);
  text.copy(data, 14);
  data.writeUInt32LE(form.length, 14 + text.length);
  form.copy(data, 18 + text.length);
  if (whole > 0) data.writeBigUInt64LE(BigInt(whole), end);
  data.writeUInt32LE(job.count, countAt);
  if (job.dropped > 0) data.writeUInt32LE(job.dropped, countAt + 4);
  current = null;
  send(data);
}

// --- Other messages

function answer(kind, id, bytes) {
  const head = Buffer.allocUnsafe(id === null ? 5 : 9);
  head[0] = kind;
  head.writeUInt32LE(head.length - 5 + bytes.length, 1);
  if (id !== null) head.writeUInt32LE(id, 5);
  current = null;
  send(Buffer.concat([head, bytes]));
}

function answerError(id, error) {
  const text =
    error instanceof Refused
      ? error.message
      : error instanceof Error
        ? `${error.name}: ${error.message}`
        : String(error);
  answer(KIND.Z, id, Buffer.from(text.slice(0, 16384)));
}

function afterFork(id, payload) {
  const end = 6 + payload.readUInt16LE(4);
  if (end > payload.length) throw new Error("the entropy exceeds the message");
  Object.assign(process.env, variablesOf(payload.toString("utf8", end)));
  // Without entropy, the generators were re-seeded before, when this machine was made ready.
  const isSeeded = end === 6 || reseed(payload.subarray(6, end), addon);
  const text = isSeeded ? EMPTY : Buffer.from("openssl=not-reseeded");
  if (callbacks.length === 0) return answer(KIND.A, id, text);
  const job = (current = { id, forking: true });
  const done = (kind, result) => {
    if (current !== job) return;
    if (kind === KIND.A) answer(kind, id, result);
    else answerError(id, result);
    pump();
  };
  const all = async () => {
    for (const callback of callbacks) await callback();
  };
  all().then(
    () => done(KIND.A, text),
    (error) => done(KIND.Z, error),
  );
}

const ORDINARY = "[String(1.5), { a: 'b'.length }]";
let rehearsal = ""; // code of the recipe, which runs as a function so that it leaves no names

/**
 * Does once what `R` and an eval do, so that their code and memory are ready. Leaves nothing behind: no callback
 * runs and no eval is counted.
 */
function rehearse(id, payload) {
  Object.assign(process.env, variablesOf(payload.toString("utf8", 4)));
  if (!reseed(crypto.randomBytes(64), addon)) return answerError(id, "openssl=not-reseeded");
  const job = (current = { id, forking: true });
  const done = (error, value) => {
    if (current !== job) return;
    const failure = error !== null ? error : printable(value);
    if (failure === null) answer(KIND.A, id, Buffer.from([callbacks.length === 0 ? 0 : 1]));
    else answerError(id, `the rehearsal failed: ${String(failure.value).slice(0, 1000)}`);
    pump();
  };
  const whole = guard(() => {
    try {
      if (rehearsal !== "")
        named("default").run(`(() => {\n${rehearsal}\n})()`, "<rehearsal>", () => undefined);
      named("default").run(ORDINARY, "<rehearsal>", done);
    } catch (error) {
      done({ value: error });
    }
  });
  if (!whole) interruptCurrent();
}

/** null if the value can be printed, otherwise the error. */
function printable(value) {
  try {
    show(value);
    return null;
  } catch (error) {
    return { value: error };
  }
}

function serve(kind, payload) {
  const id = payload.readUInt32LE(0);
  try {
    if (kind === KIND.E) {
      const [name, end] = textAt(payload, 4);
      evaluate(id, name, payload.toString("utf8", end), {});
    } else if (kind === KIND.X) {
      const [name, at] = textAt(payload, 4);
      const end = at + 4 + payload.readUInt32LE(at);
      if (end > payload.length) throw new Error("the environment exceeds the message");
      evaluate(id, name, payload.toString("utf8", end), variablesOf(payload.toString("utf8", at + 4, end)));
    } else if (kind === KIND.R) {
      afterFork(id, payload);
    } else if (kind === KIND.C) {
      answer(KIND.A, id, listContexts());
    } else if (kind === KIND.N) {
      answer(KIND.A, id, newContext(payload));
    } else if (kind === KIND.W) {
      warmed();
      if (payload.length > 4) rehearsal = payload.toString("utf8", 4);
      answer(KIND.A, id, EMPTY);
    } else if (kind === KIND.P) {
      rehearse(id, payload);
    } else if (kind === KIND.D) {
      dropContext(textAt(payload, 4)[0]);
      answer(KIND.A, id, EMPTY);
    } else {
      throw new Error("unknown message");
    }
  } catch (error) {
    answerError(id, error);
  }
}

// --- The control stream

const fd = addon === null ? 3 : Math.max(addon.moveFd(3), 3);
let input = EMPTY;

/** Handles received messages, up to an eval that awaits. */
function pump() {
  while (current === null && input.length >= 5) {
    const length = input.readUInt32LE(1);
    if (length > MAX_MESSAGE || length < 4) quit(`cannot accept a message of ${length} bytes`);
    if (input.length < 5 + length) return;
    const kind = input[0];
    const payload = input.subarray(5, 5 + length);
    input = input.subarray(5 + length);
    serve(kind, payload);
  }
}

// `onread` is faster than a stream. Its buffer is reused, so the bytes are copied.
const socket = new net.Socket({
  fd,
  readable: true,
  writable: true,
  onread: {
    buffer: Buffer.alloc(65536),
    callback(size, buffer) {
      const part = buffer.subarray(0, size);
      input = input.length === 0 ? Buffer.from(part) : Buffer.concat([input, part]);
      pump();
      return true;
    },
  },
});
socket.on("error", (error) => quit(error.message));
socket.on("end", () => quit());
socket.on("close", () => quit());

let queued = 0;

function send(data) {
  let at = 0;
  // A plain write is nearly always enough. The socket sends the bytes that do not fit, and all later ones.
  while (queued === 0 && at < data.length) {
    try {
      at += fs.writeSync(fd, data, at);
    } catch (error) {
      if (error.code === "EAGAIN") break;
      quit(error.message);
    }
  }
  if (at === data.length) return;
  queued++;
  socket.write(data.subarray(at), () => queued--);
}

// --- The process object that user code sees

const { exit, reallyExit } = process;

function quit(reason) {
  if (reason) writeAll(2, Buffer.from(`forkd kernel: ${reason}\n`));
  process.reallyExit = reallyExit;
  exit.call(process, 0);
}

function noExit(code) {
  const error = Object.assign(new Error(`process.exit(${code ?? ""}) was called`), { name: "ProcessExit" });
  Error.captureStackTrace(error, noExit);
  throw error;
}
process.exit = noExit;
process.reallyExit = noExit;

for (const [name, number] of [
  ["stdout", 1],
  ["stderr", 2],
]) {
  const stream = new Writable();
  stream.fd = number;
  // Without the state of a stream: an interrupt inside it, or user code that ends it, would drop all later
  // output.
  stream.write = (chunk, encoding, done) => {
    if (typeof encoding === "function") [encoding, done] = [undefined, encoding];
    writeAll(number, typeof chunk === "string" ? Buffer.from(chunk, encoding) : chunk);
    if (done) process.nextTick(done);
    return true;
  };
  stream.end = (chunk, encoding, done) => {
    if (typeof chunk === "string" || ArrayBuffer.isView(chunk)) stream.write(chunk, encoding, done);
    return stream;
  };
  stream.destroy = () => stream;
  Object.defineProperty(process, name, { value: stream, configurable: true, enumerable: true });
}
// Not Node's own console, which also sends everything to the inspector.
globalThis.console = new Console(process.stdout, process.stderr);

function report(error) {
  if (error === RESET) return;
  try {
    writeAll(2, explain({ value: error }).text);
  } catch {
    // a value that cannot be printed
  }
}
process.on("uncaughtException", report);
process.on("unhandledRejection", report);

const notes = [
  `node ${process.versions.node}`,
  ...(addon === null ? ["openssl=not-reseeded"] : []),
  ...(watched && process.execArgv.includes("--no-force-async-hooks-checks") ? [] : ["interrupt=partial"]),
  "protocol=4",
];
answer(KIND.Y, null, Buffer.from(notes.join("; ")));
