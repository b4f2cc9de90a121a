import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import * as path from 'node:path';

/**
 * The `foretype` command: as set, else on the PATH, else where `pip install --user` and pipx put it.
 * Never in the open folder by itself: opening somebody's repository must not run what lies in it.
 */
export async function locate(setting: string): Promise<string | undefined> {
  if (setting) {
    const expanded = setting.startsWith('~') ? path.join(homedir(), setting.slice(1)) : setting;
    return (await runnable(expanded)) ? expanded : undefined;
  }
  const name = process.platform === 'win32' ? 'foretype.exe' : 'foretype';
  const folders = [...(process.env.PATH ?? '').split(path.delimiter), path.join(homedir(), '.local', 'bin')];
  for (const folder of folders.filter((entry) => path.isAbsolute(entry))) {
    const candidate = path.join(folder, name);
    if (await runnable(candidate)) {
      return candidate;
    }
  }
  return undefined;
}

async function runnable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}
