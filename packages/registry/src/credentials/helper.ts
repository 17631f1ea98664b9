/** Credential helpers: programs `docker-credential-NAME` that keep credentials elsewhere. */
import { ProgramFailure, runProgram } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { Credentials } from "./credentials.ts";

/** A helper may have to ask a cloud, or the user for a password of a key ring. */
const helperMs = 60_000;
const maxAnswer = 256 * 1024;
/** A helper gives this name to an identity token. */
const tokenName = "<token>";

/** undefined if the helper has none for this server. */
export async function askHelper(
  name: string,
  server: string,
  signal?: AbortSignal,
): Promise<Credentials | undefined> {
  let text: string;
  try {
    text = await run(name, "get", server, signal);
  } catch (error) {
    if (error instanceof ProgramFailure && /credentials not found/i.test(error.stdout + error.stderr))
      return undefined;
    throw failed(name, error);
  }
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = undefined;
  }
  const { Username: username, Secret: secret } = (answer ?? {}) as Record<string, unknown>;
  if (typeof username !== "string" || typeof secret !== "string")
    throw failed(name, "its answer has no user name and secret");
  if (secret === "") return undefined;
  return username === tokenName ? { identityToken: secret } : { username, password: secret };
}

export async function storeWithHelper(name: string, server: string, credentials: Credentials): Promise<void> {
  if ("registryToken" in credentials) throw failed(name, "it cannot keep a token of a registry");
  const [user, secret] =
    "identityToken" in credentials
      ? [tokenName, credentials.identityToken]
      : [credentials.username, credentials.password];
  const input = JSON.stringify({ ServerURL: server, Username: user, Secret: secret });
  await run(name, "store", input).catch((error: unknown) => {
    throw failed(name, error);
  });
}

export async function eraseWithHelper(name: string, server: string): Promise<void> {
  await run(name, "erase", server).catch((error: unknown) => {
    if (error instanceof ProgramFailure && /credentials not found/i.test(error.stdout + error.stderr)) return;
    throw failed(name, error);
  });
}

async function run(name: string, verb: string, input: string, signal?: AbortSignal): Promise<string> {
  const options = { input, timeoutMs: helperMs, keep: maxAnswer, signal };
  return (await runProgram(`docker-credential-${name}`, [verb], options)).stdout;
}

/** The output of a helper may contain the secret, so it is not part of the message. */
function failed(name: string, error: unknown): AppError {
  const isMissing = error instanceof ProgramFailure && error.isMissing;
  const why = isMissing
    ? "there is no such program"
    : error instanceof ProgramFailure
      ? error.status
      : String(error);
  return new AppError(
    "host_not_ready",
    `Cannot use the credential helper "docker-credential-${name}": ${why}`,
  );
}
