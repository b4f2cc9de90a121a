import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import * as path from 'node:path';

import { locate } from './locate';

const WINDOWS = process.platform === 'win32';
const PYTHONS = WINDOWS ? ['python', 'python3'] : ['python3.13', 'python3.12', 'python3.11', 'python3', 'python'];
const PROBE = 'import sys, venv, ensurepip; sys.exit(0 if sys.version_info >= (3, 11) else 3)';
const STALE_MS = 900_000;
const POLL_MS = 1000;

/** Why there is no server to start, and what to do about it. */
export class NotInstalled extends Error {}

/**
 * The server in an environment of the extension's own, made from the wheel that the extension carries; what the wheel needs
 * comes from the package index. A second window waits for the first one.
 */
export class Installer {
  constructor(
    private readonly carried: string,
    private readonly storage: string,
    private readonly say: (doing: string) => void,
    private readonly log: (line: string) => void,
    private readonly open: () => string[],
  ) {}

  /**
   * The `foretype` command of that environment, installed where it is not yet; undefined if no wheel is carried. `signal`
   * stops what is under way. Throws NotInstalled.
   */
  async command(python: string, signal: AbortSignal): Promise<string | undefined> {
    const wheel = (await readdir(this.carried).catch(() => [])).find((name) => name.endsWith('.whl'));
    if (!wheel) {
      return undefined;
    }
    const file = path.join(this.carried, wheel);
    const digest = createHash('sha256').update(await readFile(file)).digest('hex');
    const home = path.join(this.storage, 'server');
    const command = path.join(home, WINDOWS ? 'Scripts' : 'bin', WINDOWS ? 'foretype.exe' : 'foretype');
    const marker = path.join(home, 'foretype.installed');
    const isDone = async (): Promise<boolean> => (await readFile(marker, 'utf8').catch(() => '')) === digest;
    if (await isDone()) {
      return command;
    }
    await mkdir(this.storage, { recursive: true });
    const lock = path.join(this.storage, 'server.lock');
    while (!(await mkdir(lock).then(() => true, () => false))) {
      this.say('another window is installing the language server');
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      if (signal.aborted) {
        throw new NotInstalled('stopped');
      }
      if (await isDone()) {
        return command;
      }
      const made = await stat(lock).catch(() => undefined);
      if (made && Date.now() - made.mtimeMs > STALE_MS) {
        await rm(lock, { recursive: true, force: true });
      }
    }
    try {
      await this.install(python, home, file, signal);
      await writeFile(marker, digest);
      return command;
    } finally {
      await rm(lock, { recursive: true, force: true });
    }
  }

  private async install(setting: string, home: string, wheel: string, signal: AbortSignal): Promise<void> {
    this.say('looking for Python 3.11 or newer');
    const python = await this.python(setting, signal);
    this.say('making an environment for the language server');
    await rm(home, { recursive: true, force: true });
    await this.run(signal, python, ['-m', 'venv', home], 'no environment could be made; the log says why');
    this.say('installing the language server (about a minute, once)');
    const pip = [path.join(home, WINDOWS ? 'Scripts' : 'bin', WINDOWS ? 'python.exe' : 'python'), '-m', 'pip', 'install'];
    const quiet = ['--disable-pip-version-check', '--no-input', '--prefer-binary', '--progress-bar', 'off'];
    const pins = path.join(this.carried, 'lock.txt');
    const pinned = await access(pins).then(() => ['-c', pins], () => []);
    await this.run(
      signal, pip[0]!, [...pip.slice(1), ...quiet, ...pinned, `${wheel}[local]`],
      'packages could not be installed: is the package index reachable? The log says more; restart the server to try again',
    );
  }

  private async python(setting: string, signal: AbortSignal): Promise<string> {
    for (const name of setting ? [''] : PYTHONS) {
      const candidate = await locate(setting, [name], this.open());
      if (candidate && await this.run(signal, candidate, ['-c', PROBE]).then(() => true, () => false)) {
        return candidate;
      }
    }
    const found = setting ? `${setting} is not` : 'there is no';
    throw new NotInstalled(
      `${found} Python 3.11 or newer with venv (Debian: apt install python3-venv): install one or set foretype.python.path, then restart`,
    );
  }

  private run(signal: AbortSignal, command: string, args: string[], failure = ''): Promise<void> {
    return new Promise((resolve, reject) => {
      // `-c` and `-m` import from the working directory first: never from a folder that somebody opened.
      const child = spawn(command, args, { cwd: this.storage, stdio: ['ignore', 'pipe', 'pipe'], windowsHide: true, signal });
      const told = (chunk: Buffer): void => {
        for (const line of chunk.toString().split('\n').filter((text) => text.trim())) {
          this.log(line);
          const doing = /^\s*(?:Collecting|Installing collected packages)\s*(\S*)/.exec(line);
          if (failure && doing) {
            this.say(`installing the language server: ${doing[1] || 'packages'}`);
          }
        }
      };
      child.stdout!.on('data', told);
      child.stderr!.on('data', told);
      child.on('error', (error) => reject(new NotInstalled(failure || String(error))));
      child.on('close', (code) => (code === 0 ? resolve() : reject(new NotInstalled(failure))));
    });
  }
}
