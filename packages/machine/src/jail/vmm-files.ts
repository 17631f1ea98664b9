/**
 * The files that a VMM opens beside those of its machine: program, libraries, modules and firmware. A jail
 * shows exactly these.
 */
import { access, constants, open, readdir, realpath } from "node:fs/promises";
import { delimiter, dirname, join, resolve } from "node:path";
import { isErrno, runProgram } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";

const listMs = 30_000;
/** Without option ROMs, microvm loads only this one. */
const firmware = "bios-microvm.bin";

/**
 * The absolute path of a program, found in PATH if it has no slash. QEMU finds its modules relative to its own
 * file, and a jail shows no links: the path is that of the file itself.
 */
export async function findProgram(program: string): Promise<string> {
  // A path that leads nowhere is reported where the program is started.
  if (program.includes("/")) return realpath(program).catch(() => resolve(program));
  for (const dir of (process.env["PATH"] ?? "").split(delimiter)) {
    const path = join(dir, program);
    if (await isExecutable(path)) return realpath(path);
  }
  throw new AppError("host_not_ready", `Cannot find ${program} in PATH`, {
    remedy: { action: "run_doctor" },
  });
}

/** Paths as the program itself names them: a link in a path has its target at the same place in a jail. */
export async function vmmFiles(program: string): Promise<string[]> {
  const modules = await acceleratorModules(program);
  const [libraries, roms] = await Promise.all([libraryPaths([program, ...modules]), firmwareFiles(program)]);
  return [...new Set([program, ...libraries, ...modules, ...roms])];
}

/** TCG is a module of its own in most packages. */
async function acceleratorModules(program: string): Promise<string[]> {
  const own = dirname(await realpath(program));
  const dirs = [
    ...(process.env["QEMU_MODULE_DIR"] === undefined ? [] : [process.env["QEMU_MODULE_DIR"]]),
    ...["x86_64-linux-gnu", "aarch64-linux-gnu", "."].map((arch) => join(own, "..", "lib", arch, "qemu")),
    join(own, "..", "lib64", "qemu"),
  ];
  for (const dir of dirs) {
    const names = await readdir(dir).catch((error: unknown) => {
      if (isErrno(error, "ENOENT", "ENOTDIR", "EACCES")) return [];
      throw error;
    });
    const found = names.filter((name) => /^accel-tcg-x86_64\.so$/.test(name));
    if (found.length > 0) return found.map((name) => join(dir, name));
  }
  return [];
}

/** As the loader of the host resolves them. */
async function libraryPaths(programs: readonly string[]): Promise<string[]> {
  let text: string;
  try {
    ({ stdout: text } = await runProgram("ldd", programs, { timeoutMs: listMs }));
  } catch (error) {
    throw new AppError(
      "host_not_ready",
      `Cannot list the libraries of ${programs[0]}: ${errorMessage(error)}`,
      { remedy: { action: "run_doctor" }, cause: error },
    );
  }
  return [...text.matchAll(/(?:=> |^\s+)(\/\S+) \(0x/gm)].map(([, path = ""]) => path);
}

async function firmwareFiles(program: string): Promise<string[]> {
  const { stdout } = await runProgram(program, ["-L", "help"], { timeoutMs: listMs });
  for (const dir of stdout.split("\n").filter((line) => line !== "")) {
    const path = join(dir, firmware);
    if (await isReadable(path)) return [path];
  }
  return [];
}

/** False for a script: a jail has no interpreters. */
export async function isBinary(path: string): Promise<boolean> {
  await using file = await open(path, "r");
  const { buffer } = await file.read(Buffer.alloc(4), 0, 4, 0);
  return buffer.equals(Buffer.from("\x7fELF", "latin1"));
}

const programHeaderBytes = 56;
const interpreterType = 3;

/**
 * Whether the loader of the system starts the program and so preloads libraries: it does not for a static
 * program, and for a script it preloads them into the interpreter, not surely into the VMM.
 */
export async function isDynamic(path: string): Promise<boolean> {
  await using file = await open(path, "r");
  const header = Buffer.alloc(64);
  await file.read(header, 0, header.length, 0);
  if (!header.subarray(0, 6).equals(Buffer.from("\x7fELF\x02\x01", "latin1"))) return false;
  if (header.readUInt16LE(54) !== programHeaderBytes) return false;
  const table = Buffer.alloc(programHeaderBytes * header.readUInt16LE(56));
  await file.read(table, 0, table.length, Number(header.readBigUInt64LE(32)));
  for (let at = 0; at < table.length; at += programHeaderBytes)
    if (table.readUInt32LE(at) === interpreterType) return true;
  return false;
}

function isExecutable(path: string): Promise<boolean> {
  return can(path, constants.X_OK);
}

function isReadable(path: string): Promise<boolean> {
  return can(path, constants.R_OK);
}

function can(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
