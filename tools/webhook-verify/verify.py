# Reads {secret, headers, payload} from standard input, and fails unless the official library takes the request for genuine.
import json
import sys

from standardwebhooks import Webhook

asked = json.load(sys.stdin)
print(json.dumps(Webhook(asked["secret"]).verify(asked["payload"], asked["headers"])))
