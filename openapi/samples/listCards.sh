curl -sS "$CARDMINT_URL/api/cards?status=generated&limit=100" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
