import { advice, AppError, errorMessage, errorCodes, plural } from "@forkd/contract/wire";
import { ForkError, Sandbox, wireOf, type Forkd } from "@forkd/sdk";
import type { Check, DoctorReport } from "@forkd/contract";
import type { Command } from "commander";
import { usage, wholeNumber } from "../options/arguments.ts";
import { findDaemon } from "../daemon/client.ts";
import { lacksPackages, missingPackages, prepareHost } from "../daemon/host-packages.ts";
import { buildSnapshot } from "../guest/build-snapshot.ts";
import type { Cli, ToAction } from "../cli.ts";
import { exitCodeOf } from "../terminal/exit-code.ts";
import { examples } from "../options/help.ts";
import { addNetworkOptions, readNetwork, type NetworkOptions } from "../options/network.ts";
import { findRecipe } from "../guest/recipes.ts";
import { checkRemedy } from "../terminal/remedies.ts";
import type { Column } from "../terminal/table.ts";

const recipeName = "python-numpy";
const code = "numpy.zeros(5).tolist()";

type Child = {
  readonly id: string;
  readonly ready_ms: number;
  readonly eval_ms: number;
  readonly result: string;
  readonly ok: boolean;
};
/** With the memory from `GET /v1/stats`, if that has it. */
type MeasuredChild = Child & {
  readonly private_bytes?: number | undefined;
  readonly shared_bytes?: number | undefined;
};

const columns: readonly Column<MeasuredChild>[] = [
  { title: "ID", value: ({ id }) => id, id: true },
  { title: "READY MS", value: ({ ready_ms }) => ready_ms.toFixed(1), align: "right" },
  { title: "EVAL MS", value: ({ eval_ms }) => eval_ms.toFixed(1), align: "right" },
  { title: "PRIVATE MIB", value: ({ private_bytes }) => mib(private_bytes), align: "right", drop: 2 },
  { title: "SHARED MIB", value: ({ shared_bytes }) => mib(shared_bytes), align: "right", drop: 1 },
  { title: "RESULT", value: ({ result }) => result },
];

export function define(command: Command, toAction: ToAction): void {
  addNetworkOptions(command)
    .option("-n, --n <count>", "Fork this many children", wholeNumber(1, 1000), 10)
    .option("--install", "Install missing Debian packages (root or sudo)")
    .addHelpText(
      "after",
      examples("forkd quickstart", "forkd quickstart -n 100", "forkd quickstart --install"),
    )
    .action(toAction(quickstart));
}

type Options = NetworkOptions & { n: number; install?: true };

async function quickstart(cli: Cli, { n, install, ...options }: Options): Promise<number> {
  const network = readNetwork(options);
  const program = programName(cli.environment.variables);
  const isLocal = cli.environment.url === undefined;
  if (install && !isLocal)
    throw usage("--install installs packages on this host, not on the one of FORKD_URL");
  if (install || (isLocal && (await findDaemon(cli.signal)) === undefined))
    await prepareHost(cli, { install: install === true, program });
  const forkd = await cli.daemon();
  const checks = await requireReadyHost(cli, forkd);
  await requireSnapshot(cli, forkd, () => {
    const missing = missingPackages(checks);
    if (missing.length > 0) throw lacksPackages(missing, program);
  });

  using progress = cli.progress(`Forking ${plural(n, "child", "children")} from ${recipeName}`);
  const startedAt = performance.now();
  const entries = await forkd.fork(recipeName, n, { ...network, signal: cli.signal });
  const forkMs = performance.now() - startedAt;
  progress.update(`Evaluating ${code} in ${plural(n, "child", "children")}`);
  const sandboxes = entries.filter((entry) => entry instanceof Sandbox);
  const failures = entries.filter((entry) => entry instanceof ForkError);
  const evaluated = await Promise.all(sandboxes.map((sandbox) => evaluate(cli, sandbox)));
  const totalMs = performance.now() - startedAt;
  const children = await measure(cli, forkd, evaluated);
  progress[Symbol.dispose]();

  if (cli.out.json) {
    const failed = failures.map(({ index, code: errorCode, message }) => ({
      index,
      code: errorCode,
      error: message,
    }));
    cli.out.document({
      tag: recipeName,
      code,
      fork_ms: rounded(forkMs),
      total_ms: rounded(totalMs),
      children,
      failures: failed,
    });
  } else {
    await cli.out.bytes(cli.out.table(columns, children));
    for (const failure of failures) cli.out.report(`forkd: child ${failure.index}: ${failure.message}`);
    await cli.out.bytes(totals(children, { forkMs, totalMs, n }));
    cli.out.note(nextSteps(program, children[0]?.id ?? "ID"));
  }
  if (failures[0] !== undefined) return exitCodeOf(failures[0].code);
  return children.every(({ ok }) => ok) ? 0 : errorCodes.internal.exit;
}

/** What the user types for this program. */
function programName(variables: NodeJS.ProcessEnv): string {
  return variables["FORKD_COMMAND"] ?? (variables["npm_lifecycle_event"] === "npx" ? "npx forkd" : "forkd");
}

async function requireReadyHost(cli: Cli, forkd: Forkd): Promise<readonly Check[]> {
  const { checks, accelerator } = wireOf<DoctorReport>(await forkd.doctor({ signal: cli.signal }));
  const failed = checks.filter(({ outcome }) => outcome === "fail");
  if (failed.length > 0) {
    const remedy = failed.map((check) => checkRemedy(check) ?? check.name).join("\n  ");
    const details = failed.map(({ name, detail }) => `${name} (${detail})`).join("; ");
    throw new AppError("host_not_ready", `This host cannot run sandboxes: ${details}`, {
      remedy: advice(remedy),
    });
  }
  for (const check of checks.filter(({ outcome }) => outcome === "warn")) {
    cli.out.note(`warning: ${check.name}: ${check.detail}`);
  }
  cli.out.note(`The host is ready (${accelerator}).`);
  return checks;
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

async function requireSnapshot(cli: Cli, forkd: Forkd, requireTools: () => void): Promise<void> {
  const snapshots = await forkd.snapshots.list({}, { signal: cli.signal }).all();
  if (snapshots.some(({ tag, bootable }) => tag === recipeName && bootable)) return;
  requireTools();
  cli.out.note(`Building ${recipeName}; later runs reuse it.`);
  const { dir } = await findRecipe(recipeName, cli.environment.recipesDir);
  await buildSnapshot(cli, { tag: recipeName, recipe: dir, force: true });
}

async function evaluate(cli: Cli, sandbox: Sandbox): Promise<Child> {
  const startedAt = performance.now();
  const outcome = await sandbox.eval(code, { signal: cli.signal }).then(
    ({ result, error }) => ({ result: result ?? error ?? "", ok: error === null }),
    (error: unknown) => ({ result: errorMessage(error), ok: false }),
  );
  const eval_ms = rounded(performance.now() - startedAt);
  return { id: sandbox.id, ready_ms: sandbox.info.readyMs, eval_ms, ...outcome };
}

async function measure(cli: Cli, forkd: Forkd, children: readonly Child[]): Promise<MeasuredChild[]> {
  const { sandboxes } = await forkd.stats({ tag: recipeName, signal: cli.signal });
  const byId = new Map(sandboxes.map((each) => [each.id, each]));
  return children.map((child) => {
    const { privateBytes: private_bytes, sharedBytes: shared_bytes } = byId.get(child.id) ?? {};
    return { ...child, private_bytes, shared_bytes };
  });
}

function totals(
  children: readonly MeasuredChild[],
  run: { forkMs: number; totalMs: number; n: number },
): string {
  const known = children.flatMap(({ private_bytes }) => private_bytes ?? []);
  const all = known.length === 0 ? undefined : known.reduce((sum, bytes) => sum + bytes, 0);
  return [
    "",
    `${children.length} of ${run.n} forked in ${run.forkMs.toFixed(0)} ms; all evaluated after ${run.totalMs.toFixed(0)} ms`,
    `private memory: ${mib(all && all / known.length)} MiB per child, ${mib(all)} MiB in total`,
    "",
  ].join("\n");
}

function mib(bytes: number | undefined): string {
  return bytes === undefined ? "-" : (bytes / 1024 / 1024).toFixed(1);
}

function nextSteps(command: string, id: string): string {
  const short = id.slice(0, 9);
  return `
The daemon and the children are running. Try:
  ${command} exec ${short} -- uname -a
  ${command} eval ${short} 'numpy.arange(10).sum()'
  ${command} ls
  ${command} kill --all
  ${command} down`;
}
