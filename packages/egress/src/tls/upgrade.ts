/** WebSocket connections of a guest, over HTTP/1.1. */
import http from "node:http";
import https from "node:https";
import type net from "node:net";
import { AppError } from "@forkd/contract";
import type { Scrubber } from "../secrets/scrubber.ts";
import { copyBody } from "./body.ts";
import { fail, outgoing, refuse, respond, silenceMs, type Guest } from "./forward.ts";
import { pairsOf, responseHeaders, sizeOf, valuesOf } from "./headers.ts";

/** `socket` is at the end of the request's headers; `head` holds the bytes after them. */
export async function forwardUpgrade(
  req: http.IncomingMessage,
  { socket, head, guest }: { socket: net.Socket; head: Buffer; guest: Guest },
): Promise<void> {
  socket.on("error", () => socket.destroy());
  const res = new http.ServerResponse(req);
  res.shouldKeepAlive = false;
  res.assignSocket(socket);
  res.once("finish", () => socket.destroySoon());
  const plan = outgoing(req, guest);
  if ("status" in plan) return refuse(req, res, { guest, refusal: plan });
  const protocol = valuesOf(req.rawHeaders, "upgrade").join(",").toLowerCase();
  if (protocol !== "websocket" || req.method !== "GET")
    return refuse(req, res, {
      guest,
      refusal: { status: 400, reason: "Only WebSocket upgrades are supported" },
    });
  const headers = plan.options.headers as http.OutgoingHttpHeaders;
  headers["Connection"] = "Upgrade";
  headers["Upgrade"] = "websocket";
  for (const name of Object.keys(headers)) {
    // Compressed messages would hide values from the filter.
    if (name.toLowerCase() === "sec-websocket-extensions") delete headers[name];
  }
  const failed = (error: unknown): void => fail(req, res, { guest, error });
  try {
    await guest.context.charge("out", sizeOf(req.rawHeaders));
  } catch (error) {
    return failed(error);
  }
  // No deadline: `timeout` of the options ends a silent connection, and connecting has its own.
  const up = https.request(plan.options);
  socket.once("close", () => up.destroy());
  up.once("timeout", () =>
    up.destroy(new AppError("deadline_exceeded", `"${guest.host.name}" sent nothing`)),
  );
  up.on("error", failed);
  up.once("response", (answer) => {
    respond(req, res, { guest, answer, filter: plan.filter }).catch(failed);
  });
  up.once("upgrade", (answer, upstream, first) => {
    up.off("error", failed);
    up.on("error", () => socket.destroy());
    res.detachSocket(socket);
    connect({ answer, upstream: upstream as net.Socket, first, socket, head, guest, filter: plan.filter });
  });
  up.end();
}

type Connected = {
  answer: http.IncomingMessage;
  upstream: net.Socket;
  first: Buffer;
  socket: net.Socket;
  head: Buffer;
  guest: Guest;
  filter: Scrubber;
};

function connect({ answer, upstream, first, socket, head, guest, filter }: Connected): void {
  const { context, host } = guest;
  const close = (): void => {
    socket.destroy();
    upstream.destroy();
  };
  for (const each of [socket, upstream]) {
    each.on("error", close);
    each.once("close", close);
    each.setTimeout(silenceMs, close);
  }
  const raw = filter.headers(responseHeaders(answer.rawHeaders));
  const lines = [...pairsOf(raw)].map(([name, value]) => `${name}: ${value}\r\n`);
  const kept = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${kept}${lines.join("")}\r\n`, "latin1");
  context.log({
    event: "request",
    protocol: "tcp",
    via: "intercepted",
    ...host,
    method: "GET",
    status: 101,
  });
  if (first.length > 0) upstream.unshift(first);
  if (head.length > 0) socket.unshift(head);
  copyBody(upstream, socket, { direction: "in", context, filter, onRefused: close });
  copyBody(socket, upstream, { direction: "out", context, onRefused: close });
}
