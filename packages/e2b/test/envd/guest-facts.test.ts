/** What a guest says about users, files and exits, as clients see it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { FileEntry } from "@forkd/contract";
import { parsePasswd } from "../../src/envd/accounts.ts";
import { entryInfo, goPermissions } from "../../src/envd/entry.ts";
import { endEvent } from "../../src/envd/exit-status.ts";
import { resolvePath } from "../../src/envd/paths.ts";

const passwd =
  "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1001::/home/user:/bin/bash\nbroken\nx:x:-1:1::/x:\n";

test("parsePasswd() skips what is not valid and always knows root", () => {
  const accounts = parsePasswd(passwd);
  assert.deepEqual([...accounts.keys()], ["root", "user"]);
  assert.deepEqual(accounts.get("user"), { name: "user", uid: 1000, gid: 1001, home: "/home/user" });
  assert.equal(parsePasswd("").get("root")?.home, "/root");
});

test("resolvePath() counts from the home", () => {
  const cases: Record<string, string> = {
    "": "/home/user",
    "~": "/home/user",
    "~/a": "/home/user/a",
    "a/../b": "/home/user/b",
    "/a/b/": "/a/b",
    "/../..": "/",
    "./~": "/home/user/~",
  };
  for (const [path, resolved] of Object.entries(cases))
    assert.equal(resolvePath(path, { home: "/home/user" }), resolved);
  const places = { home: "/home/user", base: "/app" };
  assert.deepEqual(
    ["a", "~/a", "/a", ""].map((path) => resolvePath(path, places)),
    ["/app/a", "/home/user/a", "/a", "/app"],
  );
  assert.equal(resolvePath("a", { home: "/home/user", base: "app" }), "/home/user/app/a");
  assert.throws(() => resolvePath("~root/x", { home: "/root" }), /only ~/);
  assert.throws(() => resolvePath("a\0b", { home: "/root" }), /NUL/);
  assert.throws(() => resolvePath("x".repeat(5000), { home: "/root" }), /4096/);
});

const file: FileEntry = {
  name: "a",
  path: "/a",
  type: "file",
  size: 3,
  mode: "0644",
  mtime_unix: 1.5,
  uid: 1000,
  gid: 7,
  owner: "user",
};

test("entryInfo() has names, and numbers where there are none", () => {
  assert.deepEqual(entryInfo(file), {
    name: "a",
    type: "FILE_TYPE_FILE",
    path: "/a",
    size: "3",
    mode: 0o644,
    permissions: "-rw-r--r--",
    owner: "user",
    group: "7",
    modifiedTime: "1970-01-01T00:00:01.500Z",
  });
});

test("entryInfo() describes a link by the file that it leads to", () => {
  const link: FileEntry = { ...file, type: "symlink", mode: "0777", target: "b" };
  const resolved = { path: "/c", type: "directory", mode: "0700" } as const;
  const { type, mode, permissions, symlinkTarget } = entryInfo({ ...link, resolved });
  assert.deepEqual(
    [type, mode, permissions, symlinkTarget],
    ["FILE_TYPE_DIRECTORY", 0o700, "Lrwxrwxrwx", "/c"],
  );
  const broken = entryInfo(link);
  assert.deepEqual([broken.type, broken.symlinkTarget], ["FILE_TYPE_SYMLINK", "b"]);
});

test("entryInfo() survives a time that no calendar has", () => {
  for (const mtime_unix of [1e300, -1e300, Number.MAX_SAFE_INTEGER])
    assert.match(entryInfo({ ...file, mtime_unix }).modifiedTime, /^\d{4}-/);
});

test("goPermissions() prints modes as Go does", () => {
  const of = (type: FileEntry["type"], mode: string) => goPermissions({ ...file, type, mode });
  assert.equal(of("directory", "0755"), "drwxr-xr-x");
  assert.equal(of("directory", "1777"), "dtrwxrwxrwx");
  assert.equal(of("file", "4755"), "urwxr-xr-x");
  assert.equal(of("symlink", "0777"), "Lrwxrwxrwx");
  assert.equal(of("char", "0600"), "Dcrw-------");
});

test("endEvent() words exits as Go does", () => {
  assert.deepEqual(endEvent({ exit_code: 0 }), { exitCode: 0, exited: true, status: "exit status 0" });
  assert.equal(endEvent({ exit_code: 3 }).error, "exit status 3");
  assert.deepEqual(endEvent({ exit_code: 137, signal: "SIGKILL" }), {
    exitCode: -1,
    exited: false,
    status: "signal: killed",
    error: "signal: killed",
  });
});
