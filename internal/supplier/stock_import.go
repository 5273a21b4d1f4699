package supplier

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cardmint/cardmint/internal/card"
)

// Shelf stores imported cards.
type Shelf interface {
	// KnownNumbers returns the hashes of cards that are in stock, or were ever
	// issued by any supplier. Hashes are keyed.
	KnownNumbers(ctx context.Context, hashes [][]byte) ([][]byte, error)
	// ImportStock runs f in a transaction, with a function that adds items. f
	// may run again if the transaction failed to serialize. The error is
	// card.ErrDuplicate if a number is in stock already, and card.ErrRetiredKey
	// if an item's key was retired, even during the import. After an error
	// nothing is imported.
	ImportStock(ctx context.Context, f func(add func([]card.StockItem) error) error) error
}

// SealingVault encrypts imported cards.
type SealingVault interface {
	// SealCredentials encrypts each field separately, bound to an id.
	SealCredentials(id, account uuid.UUID, c card.Credentials) (card.Sealed, error)
	// Digest returns a keyed hash. Each purpose needs its own label.
	Digest(label string, data []byte) ([]byte, error)
}

// Import imports cards from a CSV file. It reads the file twice: to check every
// line, and to store all of them or none.
type Import struct {
	Shelf    Shelf
	Vault    SealingVault
	Supplier string   // its name
	Min, Max card.USD // amounts that the supplier is used for
	Now      time.Time
	// Soon is the earliest expiry that lets a card be issued.
	Soon time.Time
	// Wrong is called for each line that can't be imported, with the reason. The
	// reason does not quote the line.
	Wrong func(line int, why string)
	// Progress is called repeatedly with the number of lines read so far.
	Progress func(lines int)
}

// Summary summarizes a file.
type Summary struct {
	Cards  map[card.USD]int // valid lines, by amount
	Soon   int              // valid lines that expire before Import.Soon
	Wrong  int              // lines that can't be imported
	hashes map[[32]byte]int // the line of each number
}

// StockFields are the columns of the file, in any order.
var StockFields = []string{"usd_amount", "card_number", "expiration_date", "security_code", "url", "url_password"}

// importBatch is how many lines are looked up and stored together.
const importBatch = 500

// line is a line of the file.
type line struct {
	number      int
	usd         card.USD
	credentials card.Credentials
	hash        []byte
}

// Check reads the whole file, and calls Wrong for every line that can't be
// imported. An error means that the file could not be checked.
func (i Import) Check(ctx context.Context, file io.Reader) (Summary, error) {
	s := Summary{Cards: map[card.USD]int{}, hashes: map[[32]byte]int{}}
	wrong := func(number int, why string) {
		s.Wrong++
		i.Wrong(number, why)
	}
	err := i.read(file, wrong, func(some []line) error {
		hashes := make([][]byte, len(some))
		for n := range some {
			hashes[n] = some[n].hash
		}
		known, err := i.Shelf.KnownNumbers(ctx, hashes)
		if err != nil {
			return err
		}
		there := make(map[[32]byte]bool, len(known))
		for _, hash := range known {
			there[[32]byte(hash)] = true
		}
		for _, l := range some {
			hash := [32]byte(l.hash)
			first, twice := s.hashes[hash]
			switch {
			case twice:
				wrong(l.number, fmt.Sprintf("it has the card number of line %d", first))
				continue
			case there[hash]:
				wrong(l.number, "its card number is in stock, or was issued before")
			default:
				s.Cards[l.usd]++
				if !expiryOf(l.credentials).After(i.Soon) {
					s.Soon++
				}
			}
			s.hashes[hash] = l.number
		}
		return nil
	})
	return s, err
}

// Store imports all lines of a file that Check has found valid, or none.
func (i Import) Store(ctx context.Context, file io.ReadSeeker) (imported int, err error) {
	err = i.Shelf.ImportStock(ctx, func(add func([]card.StockItem) error) error {
		imported = 0
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		changed := 0
		err := i.read(file, func(int, string) { changed++ }, func(some []line) error {
			items := make([]card.StockItem, len(some))
			for n, l := range some {
				id := uuid.Must(uuid.NewV7())
				sealed, err := i.Vault.SealCredentials(id, uuid.Nil, l.credentials)
				if err != nil {
					return err
				}
				items[n] = card.StockItem{ID: id, Supplier: i.Supplier, USD: l.usd, ExpiresAt: expiryOf(l.credentials),
					NumberHash: l.hash, Sealed: &sealed}
			}
			imported += len(items)
			return add(items)
		})
		if err == nil && changed > 0 {
			err = errors.New("the file was changed during the import")
		}
		return err
	})
	return imported, err
}

// read calls f with batches of valid lines, and wrong for invalid lines.
func (i Import) read(file io.Reader, wrong func(int, string), f func([]line) error) error {
	r := csv.NewReader(file)
	r.ReuseRecord, r.FieldsPerRecord = true, -1
	columns, err := columnsOf(r)
	if err != nil {
		return err
	}
	var some []line
	for lines := 1; ; lines++ {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var syntax *csv.ParseError
		switch {
		case errors.As(err, &syntax):
			wrong(syntax.StartLine, "it is not CSV: a quote is missing, or there is one too many")
			continue
		case err != nil:
			return err
		}
		number, _ := r.FieldPos(0)
		if l, why := i.parse(record, columns); why != "" {
			wrong(number, why)
		} else if l.hash, err = i.Vault.Digest("card number", []byte(l.credentials.CardNumber.Reveal())); err != nil {
			return err
		} else {
			l.number = number
			some = append(some, l)
		}
		if len(some) == importBatch {
			if err := f(some); err != nil {
				return err
			}
			some = some[:0]
		}
		if lines%10_000 == 0 {
			i.Progress(lines)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return f(some)
}

// columnsOf reads the header, and returns the column of each of StockFields.
func columnsOf(r *csv.Reader) ([]int, error) {
	header, err := r.Read()
	columns := make([]int, len(StockFields))
	for n, field := range StockFields {
		columns[n] = slices.IndexFunc(header, func(h string) bool {
			return strings.TrimSpace(strings.TrimPrefix(h, "\ufeff")) == field
		})
		if columns[n] < 0 {
			err = errors.New("no header")
		}
	}
	if err != nil || len(header) != len(StockFields) {
		return nil, errors.New("line 1: it is not the header; the columns are " + strings.Join(StockFields, ", "))
	}
	return columns, nil
}

// parse returns a line without its hash, or the reason why it can't be imported.
func (i Import) parse(record []string, columns []int) (line, string) {
	if len(record) != len(columns) {
		return line{}, fmt.Sprintf("it has %d fields, not %d", len(record), len(columns))
	}
	field := func(n int) string { return strings.Clone(strings.TrimSpace(record[columns[n]])) }
	usd, err := card.ParseUSD(field(0))
	if err != nil {
		return line{}, "its usd_amount " + err.Error()
	}
	if usd < i.Min || usd > i.Max {
		return line{}, fmt.Sprintf("its usd_amount must be between %s and %s", i.Min, i.Max)
	}
	c := card.Credentials{CardNumber: card.Secret(field(1)), ExpirationDate: card.Secret(field(2)),
		SecurityCode: card.Secret(field(3)),
		URL:          card.Secret(field(4)), URLPassword: card.Secret(field(5))}
	if flaw := c.Flaw(i.Now); flaw != "" {
		return line{}, strings.Replace(flaw, "the supplier gave", "it has", 1)
	}
	return line{usd: usd, credentials: c}, ""
}

// expiryOf returns the end of the expiry month of a valid card.
func expiryOf(c card.Credentials) time.Time {
	month, _ := time.Parse("01/06", c.ExpirationDate.Reveal())
	return month.AddDate(0, 1, 0)
}
