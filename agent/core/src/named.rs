//! Enums whose values have a name or, if they are errors, a message.

/// Defines an enum with a text for each value, which `name` returns and `Display` writes.
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident { $($(#[$doc:meta])* $one:ident $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $one,)*
        }

        impl $type {
            /// All values, in the order of the definition.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$one),*];

            /// Returns the value's name or message.
            pub fn name(self) -> &'static str {
                [$($text),*].get(self as usize).copied().unwrap_or_default()
            }

            /// Returns the value of that name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                out.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;
