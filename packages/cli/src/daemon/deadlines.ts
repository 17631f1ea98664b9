/** How long the CLI waits for a daemon. Calls that do work in the daemon last as long as the work. */

/** ms for a health check; a daemon answers at once unless its host is badly overloaded */
export const healthMs = 15_000;
/** ms for the start of a daemon; adopting hundreds of machines takes most of it */
export const startMs = 60_000;
/** ms from SIGTERM to SIGKILL for a daemon that did not start in time */
export const killMs = 3_000;
/** ms for a daemon that has published its record to listen; it listens before it publishes */
export const listenMs = 5_000;
/** ms for systemctl; systemd gives up a start after 90 s by default */
export const systemctlMs = 120_000;
