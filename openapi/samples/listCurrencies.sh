curl -sS "$CARDMINT_URL/api/currencies" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
