import { CardmintClient } from "@cardmint/client";

const cardmint = CardmintClient.fromEnv(); // CARDMINT_URL and CARDMINT_TOKEN

let last = 41; // stored in a file or a database
for await (const event of cardmint.listEvents({ after: last })) {
  console.log(event.seq, event.type);
  last = event.seq;
}
