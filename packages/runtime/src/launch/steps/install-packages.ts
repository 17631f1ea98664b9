/**
 * Packages of registries. The host downloads them, and the guest installs them: it has no network, and no code of a
 * package runs on the host.
 */
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract";
import {
  debianFactsSchema,
  debianSuite,
  downloadDebianPackages,
  downloadNodePackages,
  downloadWheels,
  packDirectory,
  pythonFactsSchema,
  pythonFactsScript,
  type LayerStep,
} from "@forkd/image";
import { readFile } from "@forkd/machine";
import { asRoot, unpack, type StepGuest } from "./step-guest.ts";
import { wheelInstaller } from "./wheel-installer.ts";

type Packages = LayerStep["step"] & { kind: "pip" | "npm" | "apt" };

/** On the disk of the guest: /tmp is memory. */
const guestPackages = "/var/cache/forkd-packages";
const maxStatusBytes = 64 << 20;
const maxReleaseBytes = 64 << 10;

export async function installPython(guest: StepGuest, step: Packages): Promise<void> {
  const python = await pythonFacts(guest);
  guest.report("downloading");
  const wheels = join(guest.work, "packages");
  const { packages, local } = step;
  await downloadWheels(guest.imageDir, { packages, local, python }, wheels, downloading(guest));
  await offer(guest, wheels);
  await asRoot(guest, ["python3", "-c", wheelInstaller, guestPackages], { what: "the installation" });
  await takeAway(guest);
}

async function pythonFacts(guest: StepGuest) {
  const output = await asRoot(guest, ["python3", "-c", pythonFactsScript], {
    what: "python3",
    quiet: true,
  }).catch((error: unknown): never => {
    if (!(error instanceof AppError) || error.code !== "invalid_recipe") throw error;
    throw new AppError("invalid_recipe", `pip needs python3 in the image: ${error.message}`, {
      details: { ...error.details },
      remedy: advice('Add "python3" to base.packages.'),
      cause: error,
    });
  });
  const parsed = pythonFactsSchema.safeParse(jsonOf(output));
  if (parsed.success) return parsed.data;
  throw new AppError("invalid_recipe", "pip cannot install for the Python of the image", {
    details: { output: output.slice(0, 500) },
    cause: parsed.error,
  });
}

const linkModules = "[ -e /node_modules ] || ln -s usr/local/lib/node_modules /node_modules";

export async function installNode(guest: StepGuest, step: Packages): Promise<void> {
  guest.report("downloading");
  const { work, signal, imageDir } = guest;
  const directory = join(work, "packages");
  const { packages, local } = step;
  const own = join(work, "npm");
  await mkdir(own);
  await downloadNodePackages(imageDir, { packages, local }, { directory, work: own }, downloading(guest));
  await unpack(guest, await packDirectory(directory, { work, signal }), "/usr/local");
  // Modules of the root directory are found from everywhere, by require() and by import.
  await asRoot(guest, ["/bin/sh", "-c", linkModules], { what: "ln", quiet: true });
}

export async function installDebian(guest: StepGuest, step: Packages): Promise<void> {
  const { agent, imageDir, work } = guest;
  const suite = debianSuite((await bytesOf(agent, "/etc/os-release", maxReleaseBytes)).toString("utf8"));
  const status = await bytesOf(agent, "/var/lib/dpkg/status", maxStatusBytes);
  const printed = await asRoot(guest, ["dpkg", "--print-architecture"], { what: "dpkg", quiet: true });
  const architecture = debianFactsSchema.shape.architecture.parse(printed.trim());
  guest.report("downloading");
  const input = { packages: step.packages, suite, architecture, status };
  const archives = await downloadDebianPackages(imageDir, input, work, downloading(guest));
  const names = await readdir(archives);
  if (names.length > 0) {
    await offer(guest, archives);
    const files = names.map((name) => `${guestPackages}/${name}`);
    await asRoot(guest, ["apt-get", "install", "--yes", "--no-install-recommends", ...files], {
      what: "apt-get install",
      env: { DEBIAN_FRONTEND: "noninteractive" },
    });
    await takeAway(guest);
  }
}

/** The progress of a download belongs to the step. */
function downloading({ signal, lease, report }: StepGuest) {
  return { signal, lease, onProgress: (_tool: string, message: string) => report(message) };
}

/** Copies the package files into the guest. */
async function offer(guest: StepGuest, directory: string): Promise<void> {
  await unpack(guest, await packDirectory(directory, guest), guestPackages);
}

/** Removes the package files from the disk, and their blocks from the layer where the guest has a program for it. */
async function takeAway(guest: StepGuest): Promise<void> {
  const script = `rm -rf ${guestPackages} && sync && { fstrim / >/dev/null 2>&1 || true; }`;
  await asRoot(guest, ["/bin/sh", "-c", script], { what: "rm", quiet: true });
}

async function bytesOf(agent: StepGuest["agent"], path: string, limit: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    for await (const bytes of await readFile(agent, path, { limit })) pieces.push(Buffer.from(bytes));
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "file_not_found") throw error;
    throw new AppError("invalid_recipe", `apt needs a Debian image: it has no ${path}`, { cause: error });
  }
  return Buffer.concat(pieces);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text.trim().split("\n").at(-1) ?? "");
  } catch {
    return undefined;
  }
}
