package config

// Example is a configuration for `delenda up` on one machine, to be edited.
const Example = `# Delenda on one machine. Every key: delenda config --reference
installation: acme                     # stands in the tables' transaction ids: never change it
state: /var/lib/delenda/state          # private; never inside a table
keeper: /etc/delenda/keeper.key        # made at the first start, mode 0600; keep a copy apart from the state
nats:
  embedded:
    dir: /var/lib/delenda/nats
    # listen: 127.0.0.1:4222           # for delenda dlq, and for senders over NATS
tables:
  - name: orders
    url: /srv/lake/orders              # or s3://bucket/orders?region=eu-central-1, gs://…, azblob://…
    identities:                        # identity type: column
      customer_id: customer_id
limits: {rows: 100000, share: 0.1}     # a request that matches more is held until: delenda release ID
ingest:
  listen: 127.0.0.1:8470
  sources:
    - name: shop
      tokens_sha256:                   # printf %s "$TOKEN" | sha256sum
        - 0000000000000000000000000000000000000000000000000000000000000000
publisher:
  listen: 127.0.0.1:8472
  shares:
    - name: partners
      schemas:
        - name: sales
          tables:
            - name: orders
`
