/**
 * The unix socket of the daemon. If its file is removed, for example with the runtime directory, no client
 * could reach the daemon any more, although it runs. So the file is made again: a second listener hands its
 * connections to the same HTTP server.
 */
import { mkdir, rm, stat } from "node:fs/promises";
import type http from "node:http";
import net from "node:net";
import { dirname } from "node:path";
import { isErrno, probeSocket, type Logger } from "@forkd/base";
import { AppError } from "@forkd/contract";

/** sun_path of a unix socket holds this many bytes before its NUL */
const maxSocketPath = 107;
/** A watch of a directory ends silently when the directory or a parent is removed or moved, so this is a poll. */
const lookMs = 2000;

interface UnixListener {
  /** Makes the file again if it is gone. Never rejects. */
  look(): Promise<void>;
  /** Accepts no more connections. Resolves when those of the second listener have ended. */
  close(): Promise<void>;
}

type UnixOptions = { path: string; log?: Logger | undefined; everyMs?: number | undefined };

export async function listenUnix(server: http.Server, options: UnixOptions): Promise<UnixListener> {
  const { path, log, everyMs = lookMs } = options;
  if (Buffer.byteLength(path) > maxSocketPath) {
    throw new AppError(
      "host_not_ready",
      `Cannot listen on ${path}: a socket's path has at most ${maxSocketPath} bytes`,
      { remedy: { action: "change_setting", setting: "runtime_dir", to: "a shorter path" } },
    );
  }
  await bind(server, path);
  let again: net.Server | undefined;
  let isClosed = false;
  let looking: Promise<void> | undefined;
  const lookOnce = async (): Promise<void> => {
    if (isClosed || (await isThere(path))) return;
    // Closing a listener removes its path, so it comes before the next one is bound.
    again?.close();
    again = undefined;
    const next = net.createServer((socket) => server.emit("connection", socket));
    try {
      await bind(next, path);
      again = next;
      log?.warn({ event: "daemon.socket", outcome: "made again", path });
    } catch (error) {
      log?.error({ event: "daemon.socket", outcome: "failed", path, error });
    }
  };
  const look = (): Promise<void> => {
    looking ??= lookOnce().finally(() => (looking = undefined));
    return looking;
  };
  const timer = setInterval(() => void look(), everyMs);
  timer.unref();
  return {
    look,
    close: async () => {
      isClosed = true;
      clearInterval(timer);
      await looking;
      const last = again;
      if (last) await new Promise<void>((resolve) => last.close(() => resolve()));
    },
  };
}

async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    return !isErrno(error, "ENOENT", "ENOTDIR");
  }
}

async function bind(server: net.Server, path: string): Promise<void> {
  await openPrivateDir(dirname(path));
  await removeStaleSocket(path);
  // bind() creates the file with the mode that the umask leaves, and listen() binds before it returns.
  const before = process.umask(0o177);
  const bound = listening(server, { path });
  process.umask(before);
  await bound;
}

async function openPrivateDir(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const uid = process.getuid?.();
  if (uid !== undefined && (await stat(dir)).uid !== uid) {
    throw new AppError("host_not_ready", `Cannot use ${dir}: it belongs to another user`, {
      remedy: { action: "change_setting", setting: "runtime_dir", to: "another directory" },
    });
  }
}

async function removeStaleSocket(path: string): Promise<void> {
  if ((await probeSocket(path)) === "answers") {
    throw new AppError("data_dir_in_use", `Cannot listen on ${path}: another daemon does`, {
      remedy: { action: "change_setting", setting: "runtime_dir", to: "another directory" },
    });
  }
  await rm(path, { force: true });
}

export function listening(server: net.Server, where: net.ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(where, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
