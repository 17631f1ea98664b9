import assert from "node:assert/strict";
import { test } from "node:test";
import {
  collectEnv,
  collectLabel,
  collectLanguage,
  matchSandbox,
  parseCopyEnd,
  parseDuration,
  parseLifetime,
  readEnvironment,
  wholeNumber,
} from "../../src/options/arguments.ts";

test("parseDuration() reads numbers and units", () => {
  const cases = [
    ["90", 90],
    ["1.5", 1.5],
    ["30s", 30],
    ["10m", 600],
    ["1h30m", 5400],
    ["2d", 172_800],
    ["500ms", 0.5],
  ] as const;
  for (const [text, seconds] of cases) assert.equal(parseDuration(text), seconds, text);
});

test("parseDuration() refuses other text", () => {
  for (const text of ["", "-1", "10x", "m", "1h-30m", "1e3", " 5"])
    assert.throws(() => parseDuration(text), /duration/, text);
});

test("parseLifetime() rounds up and requires at least one second", () => {
  assert.equal(parseLifetime("1500ms"), 2);
  assert.throws(() => parseLifetime("0"), /at least one second/);
});

test("wholeNumber() accepts numbers inside its limits", () => {
  assert.equal(wholeNumber(1, 10)("10"), 10);
  for (const text of ["0", "11", "1.5", "-1", "ten", ""])
    assert.throws(() => wholeNumber(1, 10)(text), /1 to 10/, text);
  assert.throws(() => wholeNumber(1)("0"), /1 or more/);
});

test("collectEnv() accepts pairs and names of variables that are set", () => {
  assert.deepEqual(collectEnv("A=1=2", { B: "" }), { B: "", A: "1=2" });
  assert.deepEqual(collectEnv("HERE", {}, { HERE: "yes" }), { HERE: "yes" });
  assert.throws(() => collectEnv("ABSENT", {}, {}), /NAME=VALUE/);
  assert.throws(() => collectEnv("=1"), /NAME=VALUE/);
});

test("collectLabel() requires a value", () => {
  assert.deepEqual(collectLabel("a=b", { c: "d" }), { c: "d", a: "b" });
  assert.throws(() => collectLabel("a"), /name=value/);
});

test("collectLanguage() accepts a warm-up with equal signs", () => {
  assert.deepEqual(collectLanguage("python=x = 1"), { python: { warmup: "x = 1" } });
  assert.deepEqual(collectLanguage("node", { python: { warmup: "" } }), {
    python: { warmup: "" },
    node: { warmup: "" },
  });
  assert.throws(() => collectLanguage("ruby"), /python/);
});

test("matchSandbox() finds by prefix with and without sb-", () => {
  const all = [{ id: "sb-aa11" }, { id: "sb-aa22" }, { id: "sb-bb33" }];
  assert.deepEqual(matchSandbox("bb", all), { id: "sb-bb33" });
  assert.deepEqual(matchSandbox("sb-aa1", all), { id: "sb-aa11" });
  assert.deepEqual(matchSandbox("aa", all), { ambiguous: ["sb-aa11", "sb-aa22"] });
  assert.equal(matchSandbox("cc", all), undefined);
});

test("matchSandbox() uses the name of a workspace if no single id matches", () => {
  const all = [{ id: "sb-aa11", workspace: "bb" }, { id: "sb-aa22", workspace: "a" }, { id: "sb-bb33" }];
  assert.deepEqual(matchSandbox("bb", all), { id: "sb-bb33" });
  assert.deepEqual(matchSandbox("a", all), { id: "sb-aa22" });
  assert.deepEqual(matchSandbox("aa", all), { ambiguous: ["sb-aa11", "sb-aa22"] });
});

test("parseCopyEnd() distinguishes guest, host and standard streams", () => {
  assert.deepEqual(parseCopyEnd("sb-3f:/etc/hosts"), { kind: "guest", id: "sb-3f", path: "/etc/hosts" });
  assert.deepEqual(parseCopyEnd("3f:/a:b"), { kind: "guest", id: "3f", path: "/a:b" });
  assert.deepEqual(parseCopyEnd("my-dev:/a"), { kind: "guest", id: "my-dev", path: "/a" });
  assert.deepEqual(parseCopyEnd("./3f:/a"), { kind: "host", path: "./3f:/a" });
  assert.deepEqual(parseCopyEnd("file.txt"), { kind: "host", path: "file.txt" });
  assert.deepEqual(parseCopyEnd("-"), { kind: "standard" });
  assert.throws(() => parseCopyEnd("3f:relative"), /absolute/);
});

test("readEnvironment() ignores FORKD_URL when a socket is given", () => {
  assert.equal(readEnvironment({ FORKD_URL: "http://h:1", FORKD_SOCKET: "/s" }).url, undefined);
  assert.equal(readEnvironment({ FORKD_URL: "http://h:1" }).url, "http://h:1");
  assert.equal(readEnvironment({ NO_COLOR: "" }).noColor, false);
  assert.equal(readEnvironment({ NO_COLOR: "1" }).noColor, true);
});

test("readEnvironment() decides from locale and terminal whether to use Unicode", () => {
  assert.equal(readEnvironment({ LANG: "C.UTF-8" }).unicode, true);
  assert.equal(readEnvironment({ LC_ALL: "C", LANG: "C.UTF-8" }).unicode, false);
  assert.equal(readEnvironment({ TERM: "dumb", LANG: "C.UTF-8" }).unicode, false);
  assert.equal(readEnvironment({}).unicode, false);
});
