/** Debian packages that this host lacks: names them, and installs them if the user asks for it. */
import { spawn } from "node:child_process";
import { advice, AppError, parseRemedy } from "@forkd/contract/wire";
import type { Check } from "@forkd/contract";
import type { Cli } from "../cli.ts";
import { inspectHost } from "./local.ts";

const installWords = ["apt-get", "install", "-y", "--no-install-recommends"] as const;
/** A host that lacks it has another package manager. */
const aptPackage = "apt";

/** The packages that the checks of the doctor name, each once. */
export function missingPackages(checks: readonly Check[]): string[] {
  const names = checks.flatMap(({ outcome, remedy, remedy_data: data }) => {
    const known = outcome === "ok" || data === undefined ? undefined : parseRemedy({ ...data, text: remedy });
    return known?.action === "install" ? known.packages : [];
  });
  return [...new Set(names)];
}

/** One sentence: how this user installs packages, with the package manager that this host has. */
export function installAdvice(packages: readonly string[], uid = process.getuid?.()): string {
  const others = packages.filter((name) => name !== aptPackage);
  if (others.length < packages.length)
    return `Install with the package manager of this host: ${others.join(" ")}.`;
  return `Run \`${[...(uid === 0 ? [] : ["sudo"]), ...installWords, ...packages].join(" ")}\`.`;
}

/** `program` is what the user types for this program. */
export function lacksPackages(packages: readonly string[], program: string): AppError {
  const own = packages.includes(aptPackage) ? "" : `Run \`${program} quickstart --install\`. Or by hand: `;
  return new AppError("host_not_ready", `This host lacks Debian packages: ${packages.join(", ")}`, {
    details: { packages },
    remedy: advice(own + installAdvice(packages)),
  });
}

/**
 * Called before a daemon starts, which it cannot without QEMU. Names the packages that only a build needs too,
 * so that one command installs everything; a user who has a snapshot does not need them.
 */
export async function prepareHost(cli: Cli, { install, program }: { install: boolean; program: string }) {
  const env = cli.environment.variables;
  const { checks } = await inspectHost(env, { boot: false });
  const packages = missingPackages(checks);
  const platform = checks.find(({ name, outcome }) => name === "platform" && outcome === "fail");
  if (platform !== undefined || packages.length === 0) return;
  if (install) return installPackages(cli, packages);
  const blocking = missingPackages(checks.filter(({ outcome }) => outcome === "fail"));
  if (blocking.length > 0) throw lacksPackages(packages, program);
}

async function installPackages(cli: Cli, packages: readonly string[]): Promise<void> {
  if (packages.includes(aptPackage)) {
    throw new AppError("host_not_ready", "Cannot install packages: this host has no apt-get", {
      details: { packages },
      remedy: advice(installAdvice(packages)),
    });
  }
  cli.out.note(`Installing Debian packages: ${packages.join(" ")}`);
  // A new host has no package lists, or old ones that name files that are gone.
  await runAsRoot(cli, ["apt-get", "update", "-qq"]);
  await runAsRoot(cli, [...installWords, "-qq", ...packages]);
}

/** sudo may ask for a password at the terminal. Output is not a result, so it goes to stderr. */
function runAsRoot(cli: Cli, words: readonly string[]): Promise<void> {
  const sudo = process.getuid?.() === 0 ? [] : ["sudo"];
  const [command = "", ...args] = [...sudo, "env", "DEBIAN_FRONTEND=noninteractive", ...words];
  return new Promise((resolve, reject) => {
    const fail = (why: string, cause?: unknown) => {
      const remedy = advice(`Run \`${[...sudo, ...words].join(" ")}\` to see what fails.`);
      reject(
        new AppError("host_not_ready", `Cannot install Debian packages: ${words.join(" ")} ${why}`, {
          remedy,
          cause,
        }),
      );
    };
    const child = spawn(command, args, { stdio: ["inherit", 2, 2], signal: cli.signal });
    child.once("error", (error) => fail("could not be started", error));
    child.once("exit", (code, signal) => {
      if (code === 0) resolve();
      else fail(signal === null ? `exited with code ${code}` : `was stopped by ${signal}`);
    });
  });
}
