import { LanguageClient } from 'vscode-languageclient/node';

/** A client whose own complaints go into the log alone: the library insists on a pop-up for each start that fails. */
export class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  override warn(message: string, data?: unknown): void {
    super.warn(message, data, false);
  }

  override info(message: string, data?: unknown): void {
    super.info(message, data, false);
  }
}
