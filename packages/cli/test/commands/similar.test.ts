/** Names that do not exist, and the names that were meant. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

test("a missing tag is answered with the names that the daemon found similar", async () => {
  const missing = (similar: unknown) => ({
    status: 404,
    json: {
      error: 'Cannot find snapshot "dss"',
      code: "snapshot_not_found",
      details: { tag: "dss", similar },
    },
  });
  let similar: unknown = ["ds"];
  await using daemon = await openFakeDaemon({ "POST /v1/sandboxes": () => missing(similar) });
  const stderr = async () => (await runCli(["fork", "dss"], daemon)).stderr.split("\n")[1];
  assert.equal(await stderr(), '  Did you mean "ds"? Run `forkd images` to list snapshots.');
  similar = ["a", "b", "c"];
  assert.equal(await stderr(), '  Did you mean "a", "b" or "c"? Run `forkd images` to list snapshots.');
  similar = "not a list";
  assert.equal(await stderr(), "  Run `forkd images` to list snapshots.");
});

test("a prefix that fits no sandbox is compared with the names of workspaces", async () => {
  const json = [{ ...sandbox(idA), workspace: "staging" }];
  await using daemon = await openFakeDaemon({ "GET /v1/sandboxes": { json } });
  const { code, stderr } = await runCli(["exec", "stagign", "--", "true"], daemon);
  assert.equal(code, 3);
  assert.match(stderr, /Did you mean "staging"\?/);
  const other = await runCli(["exec", "9999", "--", "true", "--json"], daemon);
  assert.doesNotMatch(other.stderr, /Did you mean/);
});

test("a recipe that does not exist is compared with the bundled ones", async () => {
  await using daemon = await openFakeDaemon({});
  const recipes = join(daemon.dir, "recipes");
  await mkdir(join(recipes, "python-numpy"), { recursive: true });
  await writeFile(join(recipes, "python-numpy", "recipe.json"), "{}");
  const options = { socket: daemon.socket, env: { FORKD_RECIPES_DIR: recipes }, cwd: daemon.dir };
  const { code, stderr } = await runCli(["build", "pyhton-numpy"], options);
  assert.equal(code, 3);
  assert.match(stderr, /\n {2}Did you mean "python-numpy"\? Give a directory/);
});
