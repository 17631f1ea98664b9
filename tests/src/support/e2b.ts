/** A daemon for the official clients of E2B, and forkd's own API beside them. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { startDaemon, type TestDaemon } from "./daemon.ts";

export type E2bDaemon = TestDaemon & {
  readonly url: string;
  readonly token: string;
  /** what the clients are given: as options, and as environment variables */
  readonly options: { readonly apiUrl: string; readonly sandboxUrl: string; readonly apiKey: string };
  readonly variables: Readonly<Record<"E2B_API_URL" | "E2B_SANDBOX_URL" | "E2B_API_KEY", string>>;
};

/** Its default templates are the snapshot `python`. */
export async function startE2bDaemon(env: Record<string, string> = {}): Promise<E2bDaemon> {
  const daemon = await startDaemon({
    snapshots: ["python"],
    env: {
      FORKD_LISTEN: "127.0.0.1:0",
      FORKD_E2B_TEMPLATES: "base=python,code-interpreter-v1=python",
      ...env,
    },
  });
  return Object.assign(daemon, await e2bAccess(daemon));
}

export async function e2bAccess({ dataDir }: Pick<TestDaemon, "dataDir">) {
  const record = JSON.parse(await readFile(join(dataDir, "daemon.json"), "utf8")) as Record<string, string>;
  const url = record["url"] ?? "";
  const token = (await readFile(record["token_file"] ?? "", "utf8")).trim();
  const apiKey = e2bKey(token);
  return {
    url,
    token,
    options: { apiUrl: url, sandboxUrl: url, apiKey },
    variables: { E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_API_KEY: apiKey },
  };
}

export function e2bKey(secret: string): string {
  return `e2b_${Buffer.from(secret).toString("hex")}`;
}
