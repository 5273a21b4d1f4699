// Package failpoint kills the process where a crash would do the most harm, for
// tests.
//
// It imports none of ours. Without the build tag failpoints, Hit does nothing.
// With it, the environment variable CARDMINT_FAILPOINT=NAME kills the process,
// as kill -9 does, when it reaches the named point; NAME:N skips N-1 hits
// first. With panic:NAME or panic:NAME:N, the point panics instead.
package failpoint

// Name is the name of a failpoint.
type Name string

// The failpoints, along the path of a payment.
const (
	Applying   Name = "settle/applying"   // what makes a card paid is written, and not committed
	Applied    Name = "settle/applied"    // the intents of paid cards are committed
	Claimed    Name = "issue/claimed"     // whom to ask is committed, and nobody was asked
	Submitting Name = "issue/submitting"  // the supplier is about to be asked
	Sent       Name = "supplier/sent"     // the request is sent, and its answer is not read
	Answered   Name = "issue/answered"    // the supplier's answer is read, and not stored
	Issuing    Name = "issue/issuing"     // credentials, status and event are written, and not committed
	Issued     Name = "issue/issued"      // they are committed
	Refusing   Name = "issue/refusing"    // a refund is found due, and that is not committed
	Delivering Name = "webhook/sending"   // an event is about to be sent
	Delivered  Name = "webhook/delivered" // the receiver's answer is read, and not stored
)

// Names returns all failpoints.
func Names() []Name {
	return []Name{Applying, Applied, Claimed, Submitting, Sent, Answered, Issuing, Issued, Refusing, Delivering, Delivered}
}
