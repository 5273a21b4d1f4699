// Reads {secret, headers, payload} from standard input, and fails unless the official library takes the request for genuine.
const { Webhook } = require("standardwebhooks");
const { secret, headers, payload } = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(new Webhook(secret).verify(payload, headers)));
