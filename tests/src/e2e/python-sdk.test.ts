/**
 * The Python SDK as its users get it: built, installed from the wheel without a network, and run against a real
 * daemon. Only the tools that build and check it come from the package index; they stay in .cache.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { runProgram, Scope } from "@forkd/base";
import { withDaemons, type TestDaemon } from "../support/daemon.ts";
import { linkSnapshot } from "../support/data-dir.ts";
import { blocksOf, type Block } from "../support/documented/blocks.ts";
import { repository } from "../support/places.ts";
import { testDir } from "../support/test-dir.ts";

const sdk = join(repository, "sdks/python");
const cache = join(repository, ".cache/python-sdk");
const programMs = 240_000;
/** `-B`: no compiled files in the tree. */
const quiet = ["-B", "-W", "ignore::ResourceWarning"];

/** A virtual environment with the tools in requirements.txt; made again when that file changes. */
async function toolPython(): Promise<string> {
  const wanted = readFileSync(join(sdk, "tools/requirements.txt"), "utf8");
  const venv = join(cache, "tools");
  const stamp = join(venv, "stamp");
  const python = join(venv, "bin/python");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return python;
  rmSync(venv, { recursive: true, force: true });
  mkdirSync(cache, { recursive: true });
  await run("python3", ["-m", "venv", venv]);
  await run(python, ["-m", "pip", "install", "-q", "-r", join(sdk, "tools/requirements.txt")]);
  writeFileSync(stamp, wanted);
  return python;
}

async function run(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  const clean = Object.entries(process.env).filter(([name]) => !/^(FORKD|PYTHON)/.test(name));
  const options = { cwd: sdk, env: { ...Object.fromEntries(clean), ...env }, timeoutMs: programMs };
  return (await runProgram(program, [...args], options)).stdout;
}

/** The Python programs of a page as one: they continue from each other. */
function programOf(page: string): string {
  // e2b-guide.test.ts runs the programs for E2B.
  const isOwn = ({ language, lines }: Block) => language === "python" && !lines.join().includes("e2b_");
  const blocks = blocksOf(page).filter(isOwn);
  assert.ok(blocks.length > 0, `${page} has no Python`);
  return blocks.map(({ lines }) => lines.join("\n")).join("\n\n");
}

describe("the Python SDK", () => {
  const scope = new Scope();
  let tools = "";
  let dir = "";
  /** Python of an environment that has only the wheel */
  let python = "";

  before(async () => {
    dir = scope.use(await testDir()).path;
    tools = await toolPython();
    const build = `import sys; from flit_core import buildapi as b; b.build_wheel(sys.argv[1]); b.build_sdist(sys.argv[1])`;
    mkdirSync(join(dir, "built"));
    await run(tools, ["-B", "-c", build, join(dir, "built")]);
    await run("python3", ["-m", "venv", "--without-pip", join(dir, "venv")]);
    python = join(dir, "venv/bin/python");
    const offline = ["install", "-q", "--no-index", "--no-deps"];
    await run(tools, ["-m", "pip", "--python", python, ...offline, built(".whl")]);
  });
  after(() => scope[Symbol.asyncDispose]());

  const built = (ending: string): string => {
    const names = readdirSync(join(dir, "built")).filter((name) => name.endsWith(ending));
    assert.equal(names.length, 1);
    return join(dir, "built", names[0] ?? "");
  };

  test("the sdist builds the same package as the wheel, without a network", async (t) => {
    const target = join(dir, "from-sdist");
    const offline = ["-q", "--no-index", "--no-deps", "--no-build-isolation", "--target", target];
    await run(tools, ["-m", "pip", "install", ...offline, built(".tar.gz")]);
    const list = [
      "import forkd, hashlib, pathlib, sys",
      "root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else forkd.__file__).parent",
      "files = sorted(each for each in root.rglob('*') if each.is_file() and each.suffix != '.pyc')",
      "print([(str(each.relative_to(root)), hashlib.sha256(each.read_bytes()).hexdigest()) for each in files])",
    ].join("\n");
    const files = await run(python, ["-B", "-c", list]);
    assert.equal(await run(python, ["-B", "-c", list, join(target, "forkd/__init__.py")]), files);
    assert.match(files, /py\.typed/);
    for (const ending of [".whl", ".tar.gz"])
      t.diagnostic(`${ending}: ${statSync(built(ending)).size} bytes`);
  });

  test("its types are strict, and so are those of the examples", async () => {
    const mypy = ["-m", "mypy", "--strict", "--cache-dir", join(cache, "mypy")];
    await run(tools, mypy);
    const program = join(dir, "guide.py");
    writeFileSync(program, programOf("docs/guide/sdk-python.md"));
    await run(tools, [...mypy, "--config-file", "", "--python-executable", python, program]);
  });

  test("its tests without VMs pass with the installed wheel", async () => {
    await run(python, [...quiet, "-m", "unittest", "discover", "-s", "tests", "-t", "tests"]);
  });

  test("everything works against a real daemon, and examples run as printed", async (t) => {
    await withDaemons(["python"], async (start, dataDir) => {
      await linkSnapshot(dataDir, "python", "python-numpy");
      let daemon: TestDaemon = await start({ FORKD_LISTEN: "127.0.0.1:0" });
      const env = { FORKD_SOCKET: daemon.socket, FORKD_TEST_DATA_DIR: dataDir };
      await t.test("the suite of both flavours passes, over restarts of the daemon", async () => {
        let isOver = false;
        const restarts = (async () => {
          for (;;) {
            await once(daemon.process, "exit");
            if (isOver) return;
            daemon = await start({ FORKD_LISTEN: "127.0.0.1:0" });
          }
        })();
        const suite = { ...env, FORKD_TEST_CASES: "vm_cases.py" };
        const args = [...quiet, "-m", "unittest", "-v", "test_flavours"];
        try {
          await run(python, args, { ...suite, PYTHONPATH: join(sdk, "tests") });
        } finally {
          isOver = true;
          daemon.process.kill("SIGTERM");
          await restarts;
        }
      });
      daemon = await start();
      for (const page of ["README.md", "sdks/python/README.md", "docs/guide/sdk-python.md"])
        await t.test(`Python of ${page} runs`, async () => {
          await run(python, ["-B", "-c", programOf(page)], env);
        });
      assert.deepEqual(await daemon.forkd.call("listSandboxes", {}), [], "the examples leave sandboxes");
    });
  });
});
