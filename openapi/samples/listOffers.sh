curl -sS "$CARDMINT_URL/api/offers" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
