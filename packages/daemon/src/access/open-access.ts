/** Opens everything that decides who may call, and the audit log, as the settings say. */
import { join } from "node:path";
import { Scope, type Logger } from "@forkd/base";
import { toAppError } from "@forkd/contract";
import { AuditLog } from "../audit/audit-log.ts";
import { Audit } from "../audit/audit.ts";
import { Gate } from "./gate.ts";
import { KeyStore } from "./key-store.ts";
import { isLoopback, parseListen } from "../settings/exposure.ts";
import { openToken, tokenFile } from "./token.ts";
import type { Settings } from "../settings/load.ts";
import { Tls } from "./tls.ts";

export type Access = {
  readonly gate: Gate;
  readonly keys: KeyStore;
  readonly audit: Audit;
};

type OpenedAccess = Access &
  AsyncDisposable & {
    readonly tls: Tls | undefined;
    readonly tokenFile: string;
    /** Reads token and certificate again and reopens the audit log. Never rejects. */
    readonly reload: () => Promise<void>;
  };

/** The data directory must be locked. */
export async function openAccess(settings: Settings, log: Logger): Promise<OpenedAccess> {
  await using building = new Scope();
  const place = { dataDir: settings.data_dir, file: settings.token_file };
  const token = await openToken(place, log);
  const keys = await KeyStore.open(settings.data_dir, log);
  const { tls_cert: cert, tls_key: key } = settings;
  const tls = cert && key ? await Tls.open({ cert, key }, log) : undefined;
  building.defer(() => tls?.[Symbol.dispose]());
  const audit = new Audit({
    log: await openAuditLog(settings, log, building),
    reads: settings.audit_reads,
    commands: settings.audit_commands,
  });
  const gate = new Gate({
    token: settings.auth === "off" ? undefined : token,
    keys,
    allowedHosts: settings.allowed_hosts,
    rate: { perSecond: settings.rate_limit_per_second, burst: settings.rate_limit_burst },
  });
  warnOfExposure(settings, log);
  const reload = async () => {
    log.info({ event: "daemon.reload" });
    audit.reopen();
    await tls?.reload();
    try {
      gate.changeToken(await openToken(place, log));
    } catch (error) {
      const failure = toAppError(error);
      log.error({
        event: "token.reload",
        outcome: "failed",
        error: `${failure.message}; the old one stays in use`,
      });
    }
  };
  const scope = building.keep();
  return {
    keys,
    audit,
    gate,
    tls,
    tokenFile: tokenFile(place),
    reload,
    [Symbol.asyncDispose]: () => scope[Symbol.asyncDispose](),
  };
}

async function openAuditLog(settings: Settings, log: Logger, scope: Scope): Promise<AuditLog | undefined> {
  const own = join(settings.data_dir, "audit.jsonl");
  const path = settings.audit_log ?? own;
  return path === "off"
    ? undefined
    : scope.use(await AuditLog.open({ path, followLinks: path !== own, log }));
}

function warnOfExposure(settings: Settings, log: Logger): void {
  const address = parseListen(settings.listen);
  if (settings.auth === "off" && address) {
    log.warn({ event: "auth.off" }, `Every program on this machine may call ${settings.listen}: auth is off`);
  }
  if (address && !isLoopback(address.host) && settings.tls_cert === undefined) {
    log.warn(
      { event: "tls.off" },
      `${settings.listen} has no TLS: tokens can be read on the way unless a proxy has it`,
    );
  }
}
