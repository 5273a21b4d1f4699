// Package failpoint has the process killed where a crash would be worst, for
// tests.
//
// It imports none of ours. Without the build tag failpoints, Hit does nothing
// and costs nothing. With it, the environment variable CARDMINT_FAILPOINT=NAME
// kills the process when it comes to the point of that name, as kill -9 does;
// NAME:N lets N-1 pass before. With panic:NAME or panic:NAME:N, the point
// panics instead.
package failpoint

// Name names a point at which the process can be killed.
type Name string

// The points, along the way of a payment.
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

// Names returns all of them.
func Names() []Name {
	return []Name{Applying, Applied, Claimed, Submitting, Sent, Answered, Issuing, Issued, Refusing, Delivering, Delivered}
}
