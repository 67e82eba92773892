select page, ms from {{ source('raw', 'visits') }} where ms > 2
