import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CardmintClient, type ClientOptions } from "@cardmint/client";

/** The directory of this package. */
export const root = fileURLToPath(new URL("..", import.meta.url));

/** A service that runs for one test file, with simulated money. */
export interface Service {
  url: string;
  token: string;
  client(options?: Partial<ClientOptions>): CardmintClient;
  stop(): Promise<void>;
}

/** Starts `cardmint dev` on a free port, with its data in a directory that stop removes. */
export async function startService(): Promise<Service> {
  const program = process.env["CARDMINT_BIN"] ?? join(root, "../../bin/cardmint");
  const dir = await mkdtemp(join(tmpdir(), "cardmint-client-"));
  const env = { PATH: process.env["PATH"] }; // without settings from the caller's environment
  const args = ["dev", "--listen", "127.0.0.1:0", "--database-url", `sqlite:${dir}/dev.db`, "--keys", `${dir}/dev.keys`];
  const child = spawn(program, args, { cwd: dir, env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  let log = "";
  let out = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
  child.stdout.setEncoding("utf8");
  await once(child, "spawn"); // throws if there is no program
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await ended;
    await rm(dir, { recursive: true, force: true });
  };
  for await (const text of child.stdout) {
    out += text;
    const url = /^api: (\S+)$/m.exec(out)?.[1];
    const token = /^token: (\S+)$/m.exec(out)?.[1];
    if (url !== undefined && token !== undefined) {
      return { url, token, stop, client: (options) => new CardmintClient({ baseUrl: url, token, ...options }) };
    }
  }
  await stop();
  assert.fail(`cardmint dev did not start: ${log}`);
}
