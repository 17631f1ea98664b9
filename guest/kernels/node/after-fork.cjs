// Re-seeds the generators of the Node kernel after a fork, and keeps the callbacks that user code adds.
//
// Invariants: Math.random of every context is `random` below, so one seed covers them all. Numbers that Node
// prefetches from OpenSSL (crypto.randomUUID, randomInt) are dropped; otherwise siblings would return the
// same ones. A fork during an eval sets a flag (refresh.c). Every function here that draws checks it first
// and re-seeds.
"use strict";
const crypto = require("node:crypto");
const { syncBuiltinESMExports } = require("node:module");

const { load, store } = Atomics;
const UUIDS_PREFETCHED = 128;
const INTS_PREFETCHED = 1024;

// xoshiro128**, two steps per number: 53 bits.
const state = new Uint32Array(4);

function next() {
  const x = Math.imul(state[1], 5);
  const result = Math.imul((x << 7) | (x >>> 25), 9) >>> 0;
  const t = state[1] << 9;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= t;
  state[3] = (state[3] << 11) | (state[3] >>> 21);
  return result;
}

/** Not 0 after the machine was forked; memory of the addon, if there is one. */
let forked = new Int32Array(1);
let addon = null;
const fresh = Buffer.alloc(64);

/** Reads entropy of the system, also into OpenSSL. */
function readEntropy() {
  store(forked, 0, 0); // first, so that a fork during this function sets it again
  addon.refresh(fresh);
  return fresh;
}

function refresh() {
  seed(readEntropy());
  dropPrefetched();
}

function random() {
  // A plain read, at half the cost: V8 reads elements of typed arrays again each time, also in a loop.
  if (forked[0] !== 0) refresh();
  return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
}

/** Seeds from all bytes; the same bytes always give the same sequence. */
function seed(bytes) {
  state.set([0x666f726b, 0x64000001, bytes.length, 0x9e3779b9]);
  for (let i = 0; i < bytes.length; i++) {
    state[i & 3] = Math.imul(state[i & 3] ^ bytes[i], 0x01000193) + i;
    next();
  }
  if ((state[0] | state[1] | state[2] | state[3]) === 0) state[0] = 1;
  for (let i = 0; i < 20; i++) next();
}

seed(crypto.randomBytes(64));
Math.random = random;

let uuidsDrawn = false;
let intsDrawn = false;
const { randomInt, randomUUID } = crypto;

/** Draws all prefetched numbers, so that no caller gets them. */
function dropPrefetched() {
  if (uuidsDrawn) for (let i = 0; i < UUIDS_PREFETCHED; i++) randomUUID();
  if (intsDrawn) for (let i = 0; i < INTS_PREFETCHED; i++) randomInt(2);
  uuidsDrawn = intsDrawn = false;
}

/** Makes a function check the flag before it draws. */
function wrap(owner, name, note) {
  const original = owner[name];
  const wrapped = function (...args) {
    if (load(forked, 0) !== 0) refresh();
    note?.();
    return original.apply(this, args);
  };
  Object.defineProperty(wrapped, "name", { value: name, configurable: true });
  owner[name] = wrapped;
}

const webCrypto = Object.getPrototypeOf(crypto.webcrypto);
for (const name of ["randomBytes", "randomFill", "randomFillSync"]) wrap(crypto, name);
wrap(webCrypto, "getRandomValues");
wrap(crypto, "randomInt", () => (intsDrawn = true));
for (const owner of [crypto, webCrypto]) wrap(owner, "randomUUID", () => (uuidsDrawn = true));
syncBuiltinESMExports();

const callbacks = [];

function afterFork(callback) {
  if (typeof callback !== "function") throw new TypeError("afterFork needs a function");
  callbacks.push(callback);
  return callback;
}

/** Uses the addon's flag from now on. */
function watch(loaded) {
  const memory = loaded?.forked();
  if (memory === undefined) return;
  addon = loaded;
  forked = new Int32Array(memory);
}

/** Returns whether OpenSSL was re-seeded; throws if a step fails. The caller runs the callbacks, in order. */
function reseed(entropy, loaded) {
  if (entropy.length < 16) throw new Error("too little entropy");
  // If the flag is set, the entropy may be older than the fork.
  seed(load(forked, 0) === 0 ? entropy : Buffer.concat([entropy, readEntropy()]));
  const openssl = loaded !== null && loaded.reseed(entropy);
  dropPrefetched();
  return openssl;
}

module.exports = { afterFork, callbacks, random, reseed, watch };
