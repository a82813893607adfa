package server_test

import (
	"testing"

	"delenda/sharing/sharingtest"
	"delenda/sharing/snapshot"
)

func TestTheServerConformsToTheProtocol(t *testing.T) {
	t.Parallel()
	tables := map[string]struct {
		files, vectors int64
		required       []string
		identities     []string
	}{
		"deltars-plain":       {files: 3, required: []string{"timestampNtz"}},
		"deltars-partitioned": {files: 9, identities: []string{"customer_id"}},
		"spark-no-dv":         {files: 1, required: []string{"timestampNtz"}, identities: []string{"customer_id", "email"}},
		"spark-dv-bitmap":     {files: 1, vectors: 1, required: []string{"deletionVectors"}, identities: []string{"customer_id"}},
		"spark-dv-name":       {files: 6, vectors: 3, required: []string{"columnMapping", "deletionVectors"}},
		"spark-dv-id":         {files: 2, vectors: 2, required: []string{"columnMapping", "deletionVectors", "timestampNtz"}},
	}
	sources := map[string]snapshot.Source{}
	var expected []sharingtest.Table
	for name, table := range tables {
		sources[name] = snapshot.Source{Bucket: foreign(t, name), IdentityColumns: table.identities}
		e := share(name, table.files, table.vectors, table.required...)
		e.IdentityColumns = table.identities
		expected = append(expected, e)
	}
	sharingtest.Run(t, newFixture(t, sources, nil).target(expected...))
}

func TestTheServerConformsOnTablesOfTheCollection(t *testing.T) {
	t.Parallel()
	tables := map[string]struct {
		files, vectors int64
		required       []string
	}{
		"table-with-dv-small":              {1, 1, []string{"columnMapping", "deletionVectors"}},
		"table-with-dv-large":              {22, 8, []string{"deletionVectors"}},
		"dv-partitioned-with-checkpoint":   {15, 2, []string{"deletionVectors"}},
		"table-with-columnmapping-mode-id": {2, 0, []string{"columnMapping"}},
		"data-reader-escaped-chars":        {3, 0, nil},
		"v2-checkpoint-json":               {4, 0, nil},
		"type-widening":                    {2, 0, []string{"timestampNtz", "typeWidening-preview"}},
	}
	sources := map[string]snapshot.Source{}
	var expected []sharingtest.Table
	for name, table := range tables {
		sources[name] = snapshot.Source{Bucket: foreign(t, name)}
		expected = append(expected, share(name, table.files, table.vectors, table.required...))
	}
	sharingtest.Run(t, newFixture(t, sources, nil).target(expected...))
}
