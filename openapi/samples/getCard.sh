curl -sS "$CARDMINT_URL/api/cards/019aa1c9-f868-7cef-8e4e-9b1c97fb1d88" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
