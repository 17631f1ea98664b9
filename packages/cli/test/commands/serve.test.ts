import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { flagsOf, settingTable } from "@forkd/daemon";
import { runCli } from "../run-cli.ts";

test("serve --set sets any setting, as a flag does", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  t.after(() => rm(dir, { recursive: true }));
  const env = { FORKD_DATA_DIR: dir, FORKD_DRAIN_SECS: "1" };
  const serve = (...args: string[]) => runCli(["serve", ...args], { env });
  // The CLI or the daemon refuses each before it opens anything.
  const cases: [args: string[], message: RegExp][] = [
    [["--set", "drain_secs=soon"], /drain_secs \(from flag\)/],
    [["--set", "FORKD_DRAIN_SECS=-1"], /drain_secs \(from flag\)/],
    [
      ["--set", "listen=0.0.0.0:1", "--set", "pool_memory_percent=0"],
      /listen: other machines can reach 0\.0\.0\.0:1/,
    ],
    [["--set", "drain=1"], /There is no setting "drain"\n +The settings are: .*drain_secs/],
    [["--set", "drain_secs"], /It must be NAME=VALUE/],
    [["--set", "drain_secs=1", "--set", "drain_secs=2"], /The setting drain_secs is given twice/],
    [["--set", "drain_secs=1", "--set", "FORKD_DRAIN_SECS=2"], /The setting drain_secs is given twice/],
    [
      ["--set", "pool_memory_percent=1", "--pool-memory-percent", "2"],
      /The setting pool_memory_percent is given twice/,
    ],
  ];
  for (const [args, message] of cases) {
    const { code, stderr } = await serve(...args);
    assert.match(stderr, message, args.join(" "));
    assert.equal(code, 2, args.join(" "));
  }
});

test("every flag of serve is the setting of its name", async () => {
  const refused = Object.entries(settingTable).flatMap(([name, { schema }]) => {
    const option = flagsOf()
      .find((flag) => flag.name === name)
      ?.option.split(" ");
    if (option?.length !== 2) return [];
    const value = ["", "many", "http://x", "no name"].find((text) => !schema.safeParse(text).success);
    return [{ name, args: [option[0] ?? "", value ?? assert.fail(name)] }];
  });
  const { code, stderr } = await runCli(["serve", ...refused.flatMap(({ args }) => args)]);
  assert.equal(code, 2);
  for (const { name } of refused) assert.ok(stderr.includes(`${name} (from flag)`), name);
  const plain = ["--allow-plain-http", "--set", "allow_plain_http=true"];
  assert.match((await runCli(["serve", ...plain])).stderr, /The setting allow_plain_http is given twice/);
});
