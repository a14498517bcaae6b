//! Structures with one element for each actor of a list.
//!
//! [`list_of_actors!`](crate::list_of_actors) defines a struct with a field for each actor, and a macro that applies an expression to
//! every field. The type of the fields depends on a [`Family`]: the rules of each actor, its host, its mailbox.

use crate::spine::host::Host;
use crate::spine::machine::Actor;
use crate::spine::recovery::Replica;
use crate::spine::runtime::Mailbox;

/// A kind of value that exists once for each actor.
pub trait Family {
    /// The type of the value for the actor `M`.
    type Of<M: Actor>: 'static;
}

/// The machine of each actor during recovery.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaOf;

impl Family for ReplicaOf {
    type Of<M: Actor> = Replica<M>;
}

/// The host of each actor.
#[derive(Clone, Copy, Debug)]
pub struct HostOf;

impl Family for HostOf {
    type Of<M: Actor> = Host<M>;
}

/// The mailbox of each actor.
#[derive(Clone, Copy, Debug)]
pub struct MailboxOf;

impl Family for MailboxOf {
    type Of<M: Actor> = Mailbox<M>;
}

/// The rules of each actor.
#[derive(Clone, Copy, Debug)]
pub struct RulesOf;

impl Family for RulesOf {
    type Of<M: Actor> = M::Rules;
}

/// Defines a list of actors, and a macro named `$each` that evaluates an expression for all of them:
///
/// - `each!(one in &list => value)`, also with `&mut list` or `list`: an array of the values, one for each actor, in order;
/// - `each!(list: one in &list => value)`, also with `&mut list` or `list`: a list of the values;
/// - `each!(type M => value)` and `each!(list: type M => value)`: the same, where `M` is the actor's machine.
///
/// Several lists can be iterated over together: `one in &these, other in &those`.
///
/// The first token passed must be `$`: a macro that defines another macro cannot write the `$` of its variables itself.
#[doc(hidden)]
#[macro_export]
macro_rules! list_of_actors {
    ($d:tt $each:ident; $(#[$about:meta])* $vis:vis struct $list:ident<$family:ident: $bound:path> {
        $($(#[$doc:meta])* $name:ident: $machine:ty,)*
    }) => {
        $(#[$about])*
        $vis struct $list<$family: $bound> {
            $($(#[$doc])* $vis $name: $family::Of<$machine>,)*
        }

        macro_rules! $each {
            ($d($d one:ident in &mut $d all:expr),+ => $d value:expr) => {
                [$({ $d(let $d one = &mut $d all.$name;)+ $d value }),*]
            };
            ($d one:ident in &mut $d all:expr, $d($d other:ident in & $d rest:expr),+ => $d value:expr) => {
                [$({
                    let $d one = &mut $d all.$name;
                    $d(let $d other = & $d rest.$name;)+
                    $d value
                }),*]
            };
            ($d($d one:ident in & $d all:expr),+ => $d value:expr) => {
                [$({ $d(let $d one = & $d all.$name;)+ $d value }),*]
            };
            ($d($d one:ident in $d all:ident),+ => $d value:expr) => {
                [$({ $d(let $d one = $d all.$name;)+ $d value }),*]
            };
            (type $d machine:ident => $d value:expr) => {
                [$({ type $d machine = $machine; $d value }),*]
            };
            (list: type $d machine:ident => $d value:expr) => {
                $list { $($name: { type $d machine = $machine; $d value },)* }
            };
            (list: $d($d one:ident in &mut $d all:expr),+ => $d value:expr) => {
                $list { $($name: { $d(let $d one = &mut $d all.$name;)+ $d value },)* }
            };
            (list: $d($d one:ident in & $d all:expr),+ => $d value:expr) => {
                $list { $($name: { $d(let $d one = & $d all.$name;)+ $d value },)* }
            };
            (list: $d($d one:ident in $d all:ident),+ => $d value:expr) => {
                $list { $($name: { $d(let $d one = $d all.$name;)+ $d value },)* }
            };
        }
    };
}
