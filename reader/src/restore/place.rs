//! One place of a topology: a rank, as the specification counts them.
//!
//! It knows axes and sizes. It must not know records or tensors.

use waystation_format::{Code, Coordinate, Error, Result, Topology, rule};
use waystation_state::cursor::Rank;

/// A topology and a coordinate along all of its axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    topology: Topology,
    coordinate: Coordinate,
}

impl Place {
    /// A place of a topology; with no axes, the only one.
    ///
    /// # Errors
    /// `bad-argument` unless the coordinate names each axis once, in the topology's order, with an
    /// index below its size.
    pub fn new(topology: Topology, coordinate: Coordinate) -> Result<Self> {
        let axes = topology.0.iter().map(|(axis, _)| axis);
        if !coordinate.iter().map(|(axis, _)| axis).eq(axes) {
            let axes: Vec<&str> = topology.0.iter().map(|(axis, _)| axis.as_str()).collect();
            let found: Vec<&str> = coordinate.iter().map(|(axis, _)| axis.as_str()).collect();
            let message = format!("expected an index along each of {axes:?}, found {found:?}");
            return Err(Error::new(Code::BadArgument, message));
        }
        topology
            .check_coordinate(&coordinate, rule::RECORD_COORDINATE)
            .map_err(|e| Error::new(Code::BadArgument, e.message().to_owned()))?;
        Ok(Self { topology, coordinate })
    }

    /// The axes and their sizes.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The index along each of them.
    #[must_use]
    pub fn coordinate(&self) -> &Coordinate {
        &self.coordinate
    }

    /// The coordinate along those axes of the topology, in its order, that `coordinate` names.
    #[must_use]
    pub fn along(&self, coordinate: &Coordinate) -> Coordinate {
        let named = |axis: &str| coordinate.iter().any(|(name, _)| name == axis);
        self.coordinate.iter().filter(|(axis, _)| named(axis)).cloned().collect()
    }

    /// This place's number among those along `axes`, the first axis outermost.
    ///
    /// # Errors
    /// `bad-argument` for an axis that the topology does not have, or more places than 64 bits count.
    pub fn rank<'a>(&self, axes: impl IntoIterator<Item = &'a str>) -> Result<Rank> {
        Rank::along(axes, &self.topology, &self.coordinate)
            .map_err(|e| Error::new(Code::BadArgument, e.message()))
    }

    /// Why a record or scope with this coordinate, of a checkpoint of topology `saved`, does not fit
    /// this topology (chapter 19.1); `None` when it fits.
    #[must_use]
    pub fn misfit(&self, coordinate: &Coordinate, saved: &Topology) -> Option<String> {
        coordinate.iter().find_map(|(axis, _)| {
            let (was, is) = (saved.size(axis), self.topology.size(axis));
            let was = was.unwrap_or_default();
            match is {
                Some(is) if is == was => None,
                Some(is) => Some(format!("axis {axis:?} had {was} places and has {is}")),
                None => Some(format!("axis {axis:?} had {was} places and is not there")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(axes: &[(&str, u64)]) -> Vec<(String, u64)> {
        axes.iter().map(|(axis, n)| ((*axis).to_owned(), *n)).collect()
    }

    #[test]
    fn a_place_has_an_index_along_each_axis() {
        let topology = Topology(axes(&[("dp", 2), ("tp", 3)]));
        let place = Place::new(topology.clone(), axes(&[("dp", 1), ("tp", 2)])).unwrap();
        for (axes, rank, world) in
            [(&["dp", "tp"][..], 5, 6), (&["tp", "dp"], 5, 6), (&["tp"], 2, 3), (&[], 0, 1)]
        {
            assert_eq!(place.rank(axes.iter().copied()).unwrap(), Rank { rank, world });
        }
        assert_eq!(place.along(&axes(&[("tp", 0), ("pp", 0)])), axes(&[("tp", 2)]));
        assert_eq!(place.along(&axes(&[("tp", 0), ("dp", 0)])), *place.coordinate());
        assert_eq!(place.rank(["pp"]).unwrap_err().code(), Code::BadArgument);
        for bad in [&[("dp", 1)][..], &[("tp", 1), ("dp", 1)], &[("dp", 2), ("tp", 0)]] {
            let error = Place::new(topology.clone(), axes(bad)).unwrap_err();
            assert_eq!(error.code(), Code::BadArgument, "{bad:?}");
        }
    }

    #[test]
    fn what_varies_over_an_axis_fits_while_the_axis_keeps_its_size() {
        let saved = Topology(axes(&[("dp", 2), ("tp", 3)]));
        let place =
            Place::new(Topology(axes(&[("dp", 5), ("tp", 3)])), axes(&[("dp", 4), ("tp", 0)]));
        let place = place.unwrap();
        assert_eq!(place.misfit(&axes(&[("tp", 1)]), &saved), None);
        assert_eq!(place.misfit(&Vec::new(), &saved), None);
        assert!(place.misfit(&axes(&[("dp", 0)]), &saved).is_some());
        let without = Place::new(Topology::default(), Vec::new()).unwrap();
        assert!(without.misfit(&axes(&[("tp", 1)]), &saved).is_some());
    }
}
