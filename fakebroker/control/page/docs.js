// The documentation of the API: Swagger UI with the OpenAPI document, both from this server.

import { getDocument, savedToken } from "./api.js";
import { find, setText } from "./dom.js";

const BUNDLE = "/docs/swagger-ui-bundle.js";
const SECURITY_SCHEME = "token"; // Its name in the OpenAPI document.

function load(url) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
    script.src = url;
    document.head.append(script);
  });
}

/** Return why a file could not be loaded, from the problem details of the server. */
async function reasonFor(url) {
  const response = await fetch(url).catch(() => null);
  const problem = await response?.json().catch(() => null);
  return problem?.detail ?? `No response from ${location.host}. Is the process running?`;
}

async function start() {
  try {
    await load(BUNDLE);
  } catch {
    setText(find("#status"), await reasonFor(BUNDLE));
    return;
  }
  const spec = await getDocument();
  const ui = window.SwaggerUIBundle({
    spec,
    dom_id: "#swagger-ui",
    deepLinking: true,
    displayRequestDuration: true,
    docExpansion: "list",
    filter: true,
    validatorUrl: null, // Documents are not sent to Swagger's server.
    onComplete: () => savedToken() && ui.preauthorizeApiKey(SECURITY_SCHEME, savedToken()),
  });
}

start().catch((error) => setText(find("#status"), error.message));
