// Contexts of the Node kernel: run code and print its value or error.
//
// Code without a lexical declaration or await runs as a plain script. All other code runs in V8's REPL mode
// (through an inspector session of this thread), where await works at the top level and let, const and class
// may be declared again: names declared in one mode could not be declared again in the other.
//
// Invariant: nothing here replies to the host; run() calls its callback at most once, at once or later.
"use strict";
const fs = require("node:fs");
const inspector = require("node:inspector");
const Module = require("node:module");
const path = require("node:path");
const util = require("node:util");
const vm = require("node:vm");
const { afterFork, random } = require("./after-fork.cjs");
const { display } = require("./display.cjs");

const MAX_TEXT = 4 << 20;
const MAX_MESSAGE = 65536;
const MAX_FRAMES = 100;
const MAX_LINE = 1000;
const KEPT_SOURCES = 100;
const LEXICAL = /\b(?:await|let|const|class|using)\b/;
const FRAME = /^\s+at /;
const GROUP = "eval";

const session = new inspector.Session();
session.connect();

/** post() for methods that return at once. */
function call(method, params) {
  let answer;
  session.post(method, params, (error, result) => (answer = error ? undefined : result));
  return answer;
}

/** A module in the working directory: require and import() resolve names from there. */
let home = null;
function base() {
  const cwd = process.cwd();
  if (home === null || home.cwd !== cwd) {
    const module = new Module(path.join(cwd, "[eval]"));
    module.filename = module.id;
    module.paths = Module._nodeModulePaths(cwd);
    module._compile("exports.load = (name, options) => import(name, options)", module.filename);
    home = { cwd, require: Module.createRequire(module.filename), load: module.exports.load };
  }
  return home;
}

function require_(name) {
  return base().require(name);
}
for (const key of ["resolve", "cache", "extensions", "main"])
  Object.defineProperty(require_, key, { get: () => base().require[key] });

const forkd = { afterFork, import: (name, options) => base().load(name, options) };

function addGlobals(target) {
  const put = (name, value) =>
    Object.defineProperty(target, name, { value, writable: true, configurable: true });
  put("require", require_);
  put("forkd", forkd);
  put("display", display);
  put("console", globalThis.console); // the one of a new context writes only to the inspector
}

// What the warm-up has left in the default context: [name, value], and its working directory.
let warm = { bindings: [], cwd: undefined };

/** New contexts begin with what the default one has now. Functions keep the globals of the default one. */
function keepWarm(context) {
  const own = Object.getOwnPropertyNames(globalThis).filter((name) => !Object.hasOwn(baseline, name));
  const lexical = call("Runtime.globalLexicalScopeNames", {})?.names ?? [];
  const bindings = own.map((name) => [name, globalThis[name]]);
  for (const name of lexical) {
    const answer = call("Runtime.evaluate", { expression: name, objectGroup: GROUP, silent: true });
    if (answer && !answer.exceptionDetails) bindings.push([name, context.take(answer.result)]);
  }
  call("Runtime.releaseObjectGroup", { objectGroup: GROUP });
  warm = { bindings, cwd: process.cwd() };
}

const sources = new Map();

class Context {
  constructor(name, cwd, env = {}) {
    this.global = null;
    this.count = 0;
    this.env = env;
    this.home = cwd;
    this.cwd = cwd ?? warm.cwd;
    this.inspectorId = undefined;
    if (name === "default") {
      this.global = globalThis;
    } else {
      this.global = vm.createContext({}, { name: `forkd ${name}` });
      const realm = vm.runInContext("globalThis", this.global);
      const own = new Set(Object.getOwnPropertyNames(realm));
      for (const [key, value] of Object.entries(Object.getOwnPropertyDescriptors(baseline))) {
        if (own.has(key)) continue;
        // Getters of the global object work only with it as `this`.
        if (value.get) value.get = () => globalThis[key];
        if (value.get)
          value.set = (next) => Object.defineProperty(realm, key, { value: next, writable: true });
        Object.defineProperty(this.global, key, { ...value, configurable: true });
      }
      realm.Math.random = random;
      addGlobals(this.global);
      for (const [key, value] of warm.bindings)
        Object.defineProperty(realm, key, { value, writable: true, configurable: true, enumerable: true });
      const seen = (message) => {
        if (message.params.context.name === `forkd ${name}`) this.inspectorId = message.params.context.id;
      };
      // Only for the ids: if it stayed enabled, it would keep everything that is logged.
      session.on("Runtime.executionContextCreated", seen);
      call("Runtime.enable");
      call("Runtime.disable");
      session.off("Runtime.executionContextCreated", seen);
    }
    // Passes values out of the inspector as themselves, not as descriptions.
    this.taken = undefined;
    const key = "__forkd_take__";
    Object.defineProperty(this.global, key, {
      value: (value) => void (this.taken = value),
      configurable: true,
    });
    this.taker = call("Runtime.evaluate", { expression: key, contextId: this.inspectorId }).result.objectId;
    delete this.global[key];
  }

  take(remote) {
    if (remote.type === "undefined") return undefined;
    if (remote.objectId === undefined && remote.unserializableValue === undefined) return remote.value;
    call("Runtime.callFunctionOn", {
      objectId: this.taker,
      functionDeclaration: "function(value) { this(value) }",
      arguments: [
        remote.objectId ? { objectId: remote.objectId } : { unserializableValue: remote.unserializableValue },
      ],
    });
    const value = this.taken;
    this.taken = undefined;
    return value;
  }

  /** Runs code; calls done(error, value) with error = { value } if it threw. */
  run(code, name, done) {
    sources.set(name, code);
    if (sources.size > KEPT_SOURCES) sources.delete(sources.keys().next().value);
    const source = prepare(code);
    if (!LEXICAL.test(source)) {
      let value;
      try {
        const script = new vm.Script(source, { filename: name });
        const options = { displayErrors: false };
        value =
          this.global === globalThis
            ? script.runInThisContext(options)
            : script.runInContext(this.global, options);
      } catch (error) {
        return done({ value: error });
      }
      return done(null, value);
    }
    const params = {
      expression: `${source}\n//# sourceURL=${name}`,
      contextId: this.inspectorId,
      objectGroup: GROUP,
      replMode: true,
      silent: true,
    };
    session.post("Runtime.evaluate", params, (failure, answer) => {
      if (failure) return done({ value: new Error(failure.message) });
      const details = answer.exceptionDetails;
      const value = this.take(details ? (details.exception ?? { type: "undefined" }) : answer.result);
      call("Runtime.releaseObjectGroup", { objectGroup: GROUP });
      if (!details) return done(null, value);
      done({ value, place: syntaxPlace(details, value, source, name) });
    });
  }
}

function compiles(source) {
  try {
    new vm.Script(`(async () => {${source}\n})`);
    return true;
  } catch {
    return false;
  }
}

function prepare(code) {
  let source = code;
  // As in Node's REPL: code that can be an object literal is one.
  if (/^\s*\{/.test(source) && !/;\s*$/.test(source) && compiles(`return (${source}\n)`))
    source = `(${source}\n)`;
  return source.includes("import") ? redirectImports(source) : source;
}

/**
 * Scripts have no loader for import(), so it becomes a call of forkd.import(). V8 decides whether a match is
 * code and not part of a string or comment: it is code if the script does not compile with `#` in its place.
 */
function redirectImports(source) {
  const pattern = /(?<![\w$#])(?<!(?<!\.\.)\.\s*)import(?=\s*\()/g;
  if (!pattern.test(source) || !compiles(source)) return source;
  const result = source.replace(pattern, (match, at) => {
    const probe = `${source.slice(0, at)}######${source.slice(at + 6)}`;
    return compiles(probe) ? match : "forkd.import";
  });
  return compiles(result) ? result : source;
}

/** The place of a syntax error, which the error itself does not contain. */
function syntaxPlace(details, error, source, name) {
  if (details.exception?.className !== "SyntaxError" || String(error.stack).includes("<eval-")) return "";
  const line = source.split("\n")[details.lineNumber];
  if (line === undefined) return "";
  return `${name}:${details.lineNumber + 1}\n${line}\n${" ".repeat(details.columnNumber)}^\n\n`;
}

/** Removes the frames of the kernel and of Node below the user's. Code that was not parsed has no frames. */
function trim(text, parsed) {
  const lines = text.split("\n");
  const kept = [];
  for (let i = 0; i < lines.length;) {
    if (!FRAME.test(lines[i])) {
      kept.push(lines[i++]);
      continue;
    }
    let end = i;
    while (end < lines.length && FRAME.test(lines[end])) end++;
    // util.inspect ends the stack of an error that has properties with ` {` in its last frame.
    const tail = lines[end - 1].endsWith(" {") ? " {" : "";
    const block = lines.slice(i, end);
    let last = block.length - 1;
    while (last >= 0 && !block[last].includes("<eval-")) last--;
    const foreign = parsed ? block.filter((line) => !line.includes(__dirname)) : [];
    const frames = last >= 0 ? block.slice(0, last + 1) : foreign;
    if (tail && !frames.at(-1)?.endsWith(tail)) {
      if (frames.length > 0) frames[frames.length - 1] += tail;
      else kept[kept.length - 1] += tail;
    }
    kept.push(...frames);
    i = end;
  }
  return kept.join("\n");
}

/** The text as bytes, and the length of all of it if it was cut. */
function cut(text) {
  const data = Buffer.from(text);
  if (data.length <= MAX_TEXT) return { text: data, whole: 0 };
  let end = MAX_TEXT - 3;
  while ((data[end] & 0xc0) === 0x80) end--;
  return { text: Buffer.concat([data.subarray(0, end), Buffer.from("…")]), whole: data.length };
}

/** Text and JSON of a value, and whether JSON is missing because of its size; calls user code. */
function show(value) {
  const printed = cut(util.inspect(value, { maxStringLength: Infinity }));
  let form = "";
  let large = false;
  const { isMap, isPromise, isSet } = util.types;
  if (
    (typeof value !== "number" || Number.isFinite(value)) &&
    !isPromise(value) &&
    !isMap(value) &&
    !isSet(value)
  ) {
    try {
      form = JSON.stringify(value) ?? "";
    } catch (error) {
      large = error instanceof RangeError; // too long or too deep; otherwise there is no JSON form
    }
  }
  const data = Buffer.from(form);
  if (data.length <= MAX_TEXT) return { ...printed, form: data, large };
  return { ...printed, form: Buffer.alloc(0), large: true };
}

/** The frames of code of evals, from the outermost call on. Of many, the first and the last remain. */
function framesOf(stack) {
  const frames = [];
  for (const line of stack.split("\n")) {
    const found = /^\s+at (?:(.*) \()?(?:file:\/\/)?(<eval-\d+>):(\d+)/.exec(line);
    if (found === null) continue;
    const [, called = "", file, number] = found;
    const text = sources.get(file)?.split("\n")[number - 1] ?? "";
    frames.unshift({
      file,
      line: Number(number),
      function: called.slice(0, MAX_LINE),
      text: text.trim().slice(0, MAX_LINE),
    });
  }
  const half = MAX_FRAMES / 2;
  return frames.length > MAX_FRAMES ? [...frames.slice(0, half), ...frames.slice(-half)] : frames;
}

/** Text and JSON of a thrown value, and whether its message was cut; calls user code. */
function explain({ value, place = "" }) {
  const isError = util.types.isNativeError(value) || value instanceof Error;
  const text = isError
    ? place + trim(util.inspect(value), value.name !== "SyntaxError")
    : `Uncaught ${util.inspect(value)}`;
  const name = isError ? String(value.name) : value === null ? "null" : typeof value;
  const message = isError ? String(value.message) : util.inspect(value);
  const frames = isError ? framesOf(String(value.stack)) : [];
  const form = Buffer.from(JSON.stringify({ name, value: message.slice(0, MAX_MESSAGE), frames }));
  return { ...cut(`${text}\n`), form, large: message.length > MAX_MESSAGE };
}

/** Writes all of it before it returns: output is in the pipe before the value is sent. */
function writeAll(fd, data) {
  for (let at = 0; at < data.length;) {
    try {
      at += fs.writeSync(fd, data, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error; // another program may have made the shared pipe non-blocking
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

addGlobals(globalThis);
// The globals of a new context: those of Node before user code ran.
const baseline = Object.defineProperties({}, Object.getOwnPropertyDescriptors(globalThis));

module.exports = { Context, explain, keepWarm, show, writeAll };
