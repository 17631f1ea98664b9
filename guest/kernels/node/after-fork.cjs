// What the Node kernel re-seeds in a machine that was just forked, and the callbacks that user code adds.
//
// Invariants: Math.random of every context is `random` below, so one seed covers them all. Numbers that Node draws from
// OpenSSL ahead of use (crypto.randomUUID, randomInt) are thrown away, else siblings would hand out the same ones.
"use strict";
const crypto = require("node:crypto");
const { syncBuiltinESMExports } = require("node:module");

const UUIDS_AHEAD = 128;
const INTS_AHEAD = 1024;

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

function random() {
  return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
}

/** Absorb all the bytes; the same bytes always give the same sequence. */
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
crypto.randomInt = function (...args) {
  intsDrawn = true;
  return randomInt.apply(this, args);
};
crypto.randomUUID = function (options) {
  uuidsDrawn = true;
  return randomUUID(options);
};
const webCrypto = Object.getPrototypeOf(crypto.webcrypto);
const webRandomUUID = webCrypto.randomUUID;
webCrypto.randomUUID = function () {
  uuidsDrawn = true;
  return webRandomUUID.call(this);
};
syncBuiltinESMExports();

const callbacks = [];

function afterFork(callback) {
  if (typeof callback !== "function") throw new TypeError("afterFork needs a function");
  callbacks.push(callback);
  return callback;
}

/** Returns whether OpenSSL was re-seeded; throws if a step fails. Callbacks are for the caller to run, in order. */
function reseed(entropy, addon) {
  if (entropy.length < 16) throw new Error("too little entropy");
  seed(entropy);
  const openssl = addon !== null && addon.reseed(entropy);
  if (uuidsDrawn) for (let i = 0; i < UUIDS_AHEAD; i++) randomUUID();
  if (intsDrawn) for (let i = 0; i < INTS_AHEAD; i++) randomInt(2);
  uuidsDrawn = intsDrawn = false;
  return openssl;
}

module.exports = { afterFork, callbacks, random, reseed };
