/** tools/link, which `./quickstart` runs to put `forkd` on PATH. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readlink, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../..", import.meta.url)).replace(/\/$/, "");
const script = join(root, "tools/link");

async function makeHome(t: TestContext): Promise<{ bin: string; env: Record<string, string> }> {
  const home = await mkdtemp(join(tmpdir(), "forkd-link-"));
  t.after(() => rm(home, { recursive: true }));
  const bin = join(home, ".local/bin");
  await mkdir(bin, { recursive: true });
  return { bin, env: { HOME: home, PATH: `${bin}:/usr/bin:/bin`, SHELL: "/bin/sh" } };
}

/** Runs the script, at a terminal if there is an answer to type. */
function run(env: Record<string, string>, answer?: string): Promise<string> {
  const child =
    answer === undefined
      ? spawn("bash", [script], { env })
      : spawn("script", ["-qec", `bash '${script}'`, "/dev/null"], { env });
  let text = "";
  let hasAnswered = false;
  const read = (chunk: Buffer): void => {
    text += chunk.toString();
    if (answer === undefined || hasAnswered || !text.includes("[y/N]")) return;
    hasAnswered = true;
    child.stdin.write(`${answer}\n`);
  };
  child.stdout.on("data", read);
  child.stderr.on("data", read);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", () => resolve(text));
  });
}

test("tools/link makes a link at a terminal if the user agrees", async (t) => {
  const { bin, env } = await makeHome(t);
  assert.match(await run(env, "n"), /To do it later: ln -s/);
  await assert.rejects(readlink(join(bin, "forkd")), { code: "ENOENT" });
  assert.match(await run(env, "y"), /Made .*\/\.local\/bin\/forkd\./);
  assert.equal(await readlink(join(bin, "forkd")), join(root, "forkd"));
  assert.equal(await run(env), "", "it is on PATH already");
});

test("tools/link only says how where it cannot ask, and leaves another forkd alone", async (t) => {
  const { bin, env } = await makeHome(t);
  assert.equal(
    await run(env),
    `To put forkd on PATH: ln -s '${join(root, "forkd")}' '${join(bin, "forkd")}'\n`,
  );
  assert.match(
    await run({ ...env, PATH: "/usr/bin:/bin" }),
    /^To put forkd on PATH: sudo ln -s '.*' \/usr\/local\/bin\/forkd\n$/,
  );
  await symlink("/bin/true", join(bin, "forkd"));
  assert.match(await run(env), /^forkd on PATH is .*; this checkout is/);
});
