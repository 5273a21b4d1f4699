curl -sS "$CARDMINT_URL/api/events?after=41&wait=30" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
