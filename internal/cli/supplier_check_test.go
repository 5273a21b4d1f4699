package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cardmint/cardmint/internal/app"
	"github.com/cardmint/cardmint/internal/card"
)

func TestSupplierCheck_ValidFile_PrintsOffers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "suppliers.toml")
	writeFile(t, file,
		"[[supplier]]\nname = \"big\"\nkind = \"sandbox\"\nmin_usd = \"100\"\n[[supplier]]\nname = \"any\"\nkind = \"sandbox\"\npriority = -1\n")
	var out strings.Builder
	if err := (supplierCheckCommand{File: file}).Run(t.Context(),
		&globals{Deployment: app.Deployment{Mode: card.TestMode}, stdout: &out, stderr: &out}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "NAME") || !strings.HasPrefix(lines[1], "any ") ||
		!strings.Contains(lines[2], "100 to 750") {
		t.Errorf("printed\n%s", out.String())
	}
	writeFile(t, file, "[[supplier]]\n")
	out.Reset()
	if err := (supplierCheckCommand{File: file}).Run(t.Context(),
		&globals{Deployment: app.Deployment{Mode: card.TestMode}, stdout: &out, stderr: &out}); err == nil || out.Len() > 0 {
		t.Errorf("error %v, printed %s", err, out.String())
	}
}

func TestOffersText_Ranges_AreReadable(t *testing.T) {
	t.Parallel()
	for want, offers := range map[string][]card.Offer{
		"nothing":                          nil,
		"50":                               {{Min: 50_00, Max: 50_00, Left: card.Unlimited}},
		"50 to 100.50":                     {{Min: 50_00, Max: 100_50, Left: card.Unlimited}},
		"50 (3 left), 100 to 200 (0 left)": {{Min: 50_00, Max: 50_00, Left: 3}, {Min: 100_00, Max: 200_00}},
	} {
		if got := offersText(offers); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
