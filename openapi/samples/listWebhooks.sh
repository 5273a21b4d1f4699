curl -sS "$CARDMINT_URL/api/webhooks" \
  -H "Authorization: Bearer $CARDMINT_TOKEN"
