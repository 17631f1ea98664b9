/** Unix sockets in the file system. */
import { connect } from "node:net";
import { isErrno } from "./atomic-file.ts";

/** `stale`: a file is there, but no process listens on it. */
type SocketState = "answers" | "stale" | "absent";

/**
 * Connects once and closes the connection. Rejects if that fails for another reason, such as missing rights.
 */
export function probeSocket(path: string): Promise<SocketState> {
  return new Promise((resolve, reject) => {
    const probe = connect({ path });
    probe.once("connect", () => {
      probe.destroy();
      resolve("answers");
    });
    probe.once("error", (error) => {
      if (isErrno(error, "ENOENT", "ENOTDIR")) resolve("absent");
      else if (isErrno(error, "ECONNREFUSED", "ENOTSOCK")) resolve("stale");
      else reject(error);
    });
  });
}
