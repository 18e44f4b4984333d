// The entry point: build the frame, ask for a key where one is needed, then show the view that the address names.

import { cluster } from "./cluster.js";
import { navigate } from "./router.js";
import { refresh } from "./session.js";
import { buildShell } from "./shell.js";
import { applyTheme } from "./theme.js";
import { askForKey } from "./views/key.js";

applyTheme();
const shell = buildShell(document.getElementById("shell"));

async function begin() {
  for (;;) {
    try {
      shell.setSession(await refresh());
      break;
    } catch (error) {
      if (error.status === 401 || error.status === 403) await askForKey(shell.outlet, error);
      else {
        shell.setOffline(error.message);
        await new Promise((resume) => setTimeout(resume, 1_000));
      }
    }
  }
  cluster.subscribe(shell.setCluster);
  cluster.start();
  const show = () => navigate(shell.outlet, shell.setPlace);
  addEventListener("hashchange", show);
  await show();
}

begin();
