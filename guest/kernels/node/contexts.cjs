// The contexts of the Node kernel: make, list, restart, drop; their working directories and variables.
//
// Invariant: the process has the working directory of the context that ran last.
"use strict";
const fs = require("node:fs");
const { Context, keepWarm } = require("./evaluate.cjs");

let entered = new Context("default"); // the context whose working directory the process has
const contexts = new Map([["default", entered]]);

/** The context of that name; made if there is none. */
function named(name) {
  let found = contexts.get(name);
  if (found === undefined) contexts.set(name, (found = new Context(name)));
  return found;
}

/** Changes to the working directory of a context. That of the one before is kept with it. */
function enter(next) {
  if (entered === next) return;
  if (entered !== null) entered.cwd = process.cwd();
  if (next.cwd !== undefined) process.chdir(next.cwd);
  entered = next;
}

/** Sets variables of the environment; the result restores those before. */
function setEnv(variables) {
  const before = Object.keys(variables).map((name) => [name, process.env[name]]);
  Object.assign(process.env, variables);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** A message that cannot be done; its text goes to the host as it is. */
class Refused extends Error {}

function variablesOf(text) {
  const variables = {};
  for (const entry of text.split("\0")) {
    if (entry === "") continue;
    const at = entry.indexOf("=");
    if (at < 1) throw new Error("an environment entry has no =");
    variables[entry.slice(0, at)] = entry.slice(at + 1);
  }
  return variables;
}

/** A text with its length before it, and where it ends. */
function textAt(payload, at) {
  const end = at + 2 + payload.readUInt16LE(at);
  if (end > payload.length) throw new Error("the name exceeds the message");
  return [payload.toString("utf8", at + 2, end), end];
}

function newContext(payload) {
  const [name, end] = textAt(payload, 5);
  const [cwd, envAt] = textAt(payload, end);
  const replaced = contexts.get(name);
  if (replaced !== undefined && (payload[4] & 1) === 0)
    throw new Refused("exists: there is a context of that name");
  if (replaced !== undefined && name === "default")
    throw new Refused("unsupported: the default context of Node cannot begin again");
  if (cwd !== "" && !fs.statSync(cwd, { throwIfNoEntry: false })?.isDirectory())
    throw new Refused(`cwd: ${cwd} is not a directory`);
  const made =
    replaced === undefined
      ? new Context(name, cwd || undefined, variablesOf(payload.toString("utf8", envAt)))
      : new Context(name, replaced.home, replaced.env);
  if (entered === replaced) entered = null;
  contexts.set(name, made);
  return Buffer.from(cwdOf(made));
}

function listContexts() {
  const texts = [...contexts].map(([name, each]) => `${name}\0${cwdOf(each)}\0`);
  return Buffer.from(texts.join(""));
}

function dropContext(name) {
  if (name === "default") throw new Error("the default context cannot be dropped");
  if (entered === contexts.get(name)) entered = null;
  contexts.delete(name);
}

function cwdOf(each) {
  return each === entered || each.cwd === undefined ? process.cwd() : each.cwd;
}

function warmed() {
  keepWarm(contexts.get("default"));
  for (const each of contexts.values()) each.count = 0;
}

module.exports = {
  dropContext,
  enter,
  listContexts,
  named,
  newContext,
  Refused,
  setEnv,
  textAt,
  variablesOf,
  warmed,
};
